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
    """The attributes `fields` and `prefix` as a schema: of pyarrow if that is installed, else a mapping of names."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        of = owner if instance is None else instance
        fields = {of.prefix + name: kind for name, kind in of.fields.items()}
        try:
            return arrow_schema(fields)
        except ImportError:
            return fields
