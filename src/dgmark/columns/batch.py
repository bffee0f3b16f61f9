"""Batches of rows of several libraries: each kind gives its columns, and a batch of the same kind with more columns.

A batch that comes in is never changed: those of Ray Data are views of memory that others read, too.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dgmark.arguments.checks import is_of, shown
from dgmark.arguments.column_names import Fields, check_added, check_named
from dgmark.arguments.contents import Content, check_texts, content_of, id_of_row, is_column, is_from, is_missing
from dgmark.detection.results.detection import plain
from dgmark.errors import DgmarkError, InputError, SettingsError, each
from dgmark.rows.parquet_sink import arrow_type
from dgmark.rows.sources import MAX_CHARS


class Batch(ABC):
    """The rows of a batch, whichever library holds them.

    Attributes:
        given: the batch as it came in.
        names: the names of its columns.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        self.names: list[str] = list(given.columns)

    def column(self, name: str) -> Any:
        """A column, which holds a value for each row.

        Raises:
            InputError: the batch has no such column, or several.
        """
        check_named(self.names, name)
        return self.given[name]

    def contents(self, name: str) -> list[Content | DgmarkError]:
        """The texts, or the token ids of texts, of a column; in the place of what is neither, the error of its row.

        Raises:
            InputError: the batch has no such column, or one of another type, such as of numbers.
        """
        column = self.column(name)
        values = list(column)
        if not all(map(is_missing, values)):
            check_texts(column, name)
        return each(_content_of_row, values)

    def ids(self, name: str) -> list[str | DgmarkError]:
        """The ids of rows as texts; an error in the place of what names no row, or several rows of the batch.

        Raises:
            InputError: the batch has no such column.
        """
        ids = [id_of_row(value) for value in self.column(name)]
        times = Counter(ids)
        found: list[str | DgmarkError] = []
        for row_id in ids:
            if row_id is None:
                found.append(InputError(f"the row has no id: give each row a text or a whole number in column {name}"))
            elif times[row_id] > 1:
                error = f"{times[row_id]} rows have the id {shown(row_id)}: give each row its own id"
                found.append(InputError(error))
            else:
                found.append(row_id)
        return found

    def with_results(
        self, results: Sequence[object], fields: Fields, prefix: str, left_out: Collection[str] = ()
    ) -> Any:
        """A batch of the same kind with the columns of results, of which each field is an attribute.

        Args:
            results: what was made of each row; an error in the place of one gives nulls and its `error`.
            fields: the columns, and the type of each as Arrow writes it.
            prefix: what their names begin with.
            left_out: columns that hold nulls.
        """
        shared = [name for name in fields if name != "error" and name not in left_out]
        rows = [
            {"error": str(result)}
            if isinstance(result, DgmarkError)
            else {name: _value(getattr(result, name), fields[name]) for name in shared}
            for result in results
        ]
        columns = {prefix + name: [row.get(name) for row in rows] for name in fields}
        return self.with_columns(columns, {prefix + name: kind for name, kind in fields.items()})

    @abstractmethod
    def with_columns(self, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
        """A batch of the same kind with more columns, of these types."""


class DictBatch(Batch):
    """A dict of lists or arrays, as Ray Data and datasets give it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        _check_dict(given)
        self.given, self.names = given, list(given)

    def with_columns(self, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
        """The dict with arrays if any of its columns is one, else with lists."""
        if any(is_of(column, np.ndarray) for column in self.given.values()):
            return {**self.given} | {name: _array(columns[name], kind) for name, kind in kinds.items()}
        return {**self.given, **columns}


class PandasBatch(Batch):
    """A DataFrame of pandas; the added columns have types that hold nulls."""

    def with_columns(self, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
        """The DataFrame under the same index."""
        import pandas as pd

        types: Any = {"string": "string", "double": "float64", "int64": "Int64", "bool": "boolean"}
        index = self.given.index
        return self.given.assign(
            **{name: pd.Series(columns[name], index, types.get(kind, "object")) for name, kind in kinds.items()}
        )


class PolarsBatch(Batch):
    """A DataFrame of polars."""

    def with_columns(self, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
        """The DataFrame with the columns as series."""
        import polars as pl

        types = {"string": pl.String, "double": pl.Float64, "int64": pl.Int64, "bool": pl.Boolean}

        def type_of(kind: str) -> Any:
            outer, _, inner = kind.removesuffix(">").partition("<")
            if outer == "struct":
                return pl.Struct({name: types[of] for name, of in (field.split(":") for field in inner.split(","))})
            return pl.List(type_of(inner)) if inner else types[kind]

        return self.given.with_columns([pl.Series(name, columns[name], type_of(kind)) for name, kind in kinds.items()])


class ArrowBatch(Batch):
    """A Table or a RecordBatch of pyarrow."""

    def __init__(self, given: Any) -> None:
        self.given, self.names = given, given.column_names

    def with_columns(self, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
        """The table with the columns as arrays."""
        import pyarrow as pa

        made = self.given
        for name, kind in kinds.items():
            made = made.append_column(name, pa.array(columns[name], type=arrow_type(kind)))
        return made


# the classes of libraries that hold rows, what reads them, or else which of their methods gives such a class
_KINDS: Sequence[tuple[Mapping[str, Sequence[str]], type[Batch]]] = (
    ({"pandas": ("DataFrame",)}, PandasBatch),
    ({"polars": ("DataFrame",)}, PolarsBatch),
    ({"pyarrow": ("Table", "RecordBatch")}, ArrowBatch),
)
_NOT_READ_YET: Sequence[tuple[Mapping[str, Sequence[str]], str]] = (
    ({"polars": ("LazyFrame",)}, "collect()"),
    ({"pyarrow": ("RecordBatchReader",)}, "read_all()"),
    ({"duckdb": ("DuckDBPyRelation",)}, "to_arrow_table()"),
)


def open_batch(given: Any, added: Fields, prefix: str) -> Batch:
    """The batch as rows to which the columns `added` can be added, with `prefix` before their names.

    Raises:
        InputError: it has a column of one of their names.
        SettingsError: it is not a batch.
    """
    opened = _opened(given)
    check_added(opened.names, [prefix + name for name in added])
    return opened


def _opened(given: Any) -> Batch:
    if is_of(given, Mapping):
        return DictBatch(given)
    for classes, kind in _KINDS:
        if is_from(given, classes):
            return kind(given)
    for classes, call in _NOT_READ_YET:
        if is_from(given, classes):
            raise SettingsError(
                f"a {type(given).__name__} has not read its rows: call its {call} and give what that returns"
            )
    raise SettingsError(
        "a batch is a dict of arrays or lists, a DataFrame of pandas or polars, or a Table or RecordBatch of "
        f"pyarrow, not {shown(type(given).__name__)}"
    )


def _check_dict(batch: Mapping[str, Any]) -> None:
    """Refuse a dict that is not a batch.

    Raises:
        SettingsError: a value is not a column, as in the dict of one row, or they are not equally long.
    """
    for name, column in batch.items():
        listed = is_of(column, Sequence) and not is_of(column, str, bytes, bytearray, memoryview)
        if not (listed or is_column(column)) or not getattr(column, "ndim", 1):
            raise SettingsError(
                f"this dict is not a batch of rows: {shown(name)} holds a {type(column).__name__}, not a list or an "
                "array with a value for each row; of datasets, give map(..., batched=True)"
            )
    lengths = {name: len(column) for name, column in batch.items()}
    if len({*lengths.values()}) > 1:
        told = ", ".join(f"{shown(name)} has {length}" for name, length in lengths.items())
        raise SettingsError(f"the columns of the batch are not equally long: {told}; give each a value for each row")


def _content_of_row(value: Any) -> Content:
    if is_missing(value):
        raise InputError("there is no text: the value is missing")
    try:
        content = content_of(value)
    except SettingsError as error:
        raise InputError(str(error)) from None
    if len(content) > MAX_CHARS:
        what = "characters" if isinstance(content, str) else "token ids"
        raise InputError(f"the text has {len(content)} {what}, and {MAX_CHARS} are allowed: cut it into parts")
    return content


def _value(value: Any, kind: str) -> Any:
    """A field as the value of a column, in which a struct has the fields of its type alone."""
    value = plain(value)
    if "struct<" not in kind or value is None:
        return value
    return [{name: of for name, of in item.items() if f"{name}:" in kind} for item in value]


def _array(values: list[Any], kind: str) -> np.ndarray:
    """A column as an array: numbers with a point, of which nulls are NaN, or objects, of which nulls are None."""
    if kind == "double":
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    column = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        column[place] = value
    return column


def with_errors_of(others: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The values of rows; where another value of the row, such as its id, is an error, that error."""
    return [other if isinstance(other, DgmarkError) else value for other, value in zip(others, values, strict=True)]
