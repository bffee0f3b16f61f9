"""Rules of the fields of a request: between fields, as JSON Schema, and fields that may only have neutral values.

With them /openapi.json promises no more than holds. The models check the rules between fields themselves; what no
schema can say, such as which keys there are, stands in descriptions.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

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


def neutral_fields(**fields: tuple[Sequence[Any], str]) -> dict[str, Any]:
    """Fields that may be null, or have a value that changes nothing: what clients send by default is accepted.

    Args:
        fields: by the name of each, the values that change nothing, and the sentence that refuses all others.

    Returns:
        The fields as `pydantic.create_model` takes them.
    """
    return {
        name: (_neutral(values, why), Field(None, description=f"Not used: {why}."))
        for name, (values, why) in fields.items()
    }


def _neutral(values: Sequence[Any], why: str) -> Any:
    """The type of a field that may be null or have one of these values."""

    def check(value: object) -> object:
        # in JSON, false is not 0
        if value is None or any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values):
            return value
        raise ValueError(why)

    return Annotated[Any, AfterValidator(check), WithJsonSchema({"enum": [None, *values]})]
