"""The names and types of the columns that are added to a batch, whatever their values are.

A type is written as Arrow writes it; libraries are given their own, and none is imported before one of its objects
comes in.
"""

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import numpy as np

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
        fields = prefixed(getattr(owner, "fields", self._fields), getattr(owner, "prefix", ""))
        try:
            return arrow_schema(fields)
        except ImportError:
            return dict(fields)


def prefixed(fields: Fields, prefix: str) -> Fields:
    """The columns with this before their names."""
    return {prefix + name: kind for name, kind in fields.items()}


def polars_type(kind: str) -> Any:
    """A type as one of polars'."""
    import polars as pl

    names = {"string": pl.String, "double": pl.Float64, "int64": pl.Int64, "bool": pl.Boolean}
    return pl.List(pl.Int64) if kind == "list<int64>" else names[kind]


def pandas_column(values: Iterable[Any], kind: str, index: Any) -> Any:
    """A column of pandas with a type that can hold nulls; lists are objects."""
    import pandas as pd

    names = {"string": "string", "double": "float64", "int64": "Int64", "bool": "boolean", "list<int64>": "object"}
    return pd.Series(list(values), index=index, dtype=names[kind])


def numpy_column(values: Iterable[Any], kind: str) -> np.ndarray:
    """A column as an array: numbers with a point, of which nulls are NaN, or objects, of which nulls are None."""
    listed = list(values)
    if kind == "double":
        return np.array([np.nan if value is None else value for value in listed], dtype=np.float64)
    column = np.empty(len(listed), dtype=object)
    for place, value in enumerate(listed):
        column[place] = value
    return column
