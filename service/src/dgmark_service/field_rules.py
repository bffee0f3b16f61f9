"""Rules between the fields of a request, as JSON Schema.

With them /openapi.json promises no more than holds. The models check the rules between fields themselves; what no
schema can say, such as which keys there are, stands in descriptions.
"""

from typing import Any

Schema = dict[str, Any]
_GIVEN: Schema = {"not": {"type": "null"}}


def given(name: str, value: Schema | None = None) -> Schema:
    """The field is there and not null; with `value`, it is as this schema says."""
    return {"required": [name], "properties": {name: _GIVEN if value is None else value}}


def one_given(*names: str) -> Schema:
    """One of these fields is given, and no other."""
    return {"oneOf": [given(name) for name in names]}


def not_both(first: str, second: str) -> Schema:
    """At most one of these fields is given."""
    return {"not": {"allOf": [given(first), given(second)]}}


def needs(name: str, rule: Schema) -> Schema:
    """Where the field is given, the rule holds."""
    return {"anyOf": [{"not": given(name)}, rule]}


def rules(*each: Schema) -> Schema:
    """All of these rules, as the model's `json_schema_extra`."""
    return {"allOf": list(each)}
