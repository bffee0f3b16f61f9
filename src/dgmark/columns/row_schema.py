"""The names of the columns that are added to a batch, and their types as Arrow writes them, whatever their values."""

from types import MappingProxyType
from typing import Any

from dgmark.arguments.column_names import Fields
from dgmark.rows.parquet_sink import arrow_schema

GENERATE_FIELDS: Fields = MappingProxyType(
    {
        "text": "string",
        "token_ids": "list<int64>",
        "ended": "bool",
        "seed": "int64",
        "subkey": "int64",
        "key_fingerprint": "string",
        "choices": "int64",
        "error": "string",
    }
)
# what the check of a text adds to them
CHECK_FIELDS: Fields = MappingProxyType({"verdict": "string", "p_value": "double"})


class Schema:
    """An attribute that is the schema of the added columns: of pyarrow if that is installed, else a mapping of names.

    Args:
        fields: the columns; an object with `fields` has these instead. With a `prefix`, their names begin with it.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        prefix = getattr(owner, "prefix", "")
        fields = {prefix + name: kind for name, kind in getattr(owner, "fields", self._fields).items()}
        try:
            return arrow_schema(fields)
        except ImportError:
            return fields
