"""Batches of rows of several libraries: each kind gives its columns, and a batch of the same kind with more columns.

A batch that comes in is never changed: those of Ray Data are views of memory that others read, too.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgmark.arguments.checks import is_of, shown
from dgmark.arguments.column_names import Fields, check_added, check_named
from dgmark.arguments.contents import Content, check_texts, content_of, id_of_row, is_column, is_from, is_missing
from dgmark.detection.results.detection import plain
from dgmark.errors import DgmarkError, InputError, SettingsError, each
from dgmark.rows.parquet_sink import arrow_type, nested_type
from dgmark.rows.sources import MAX_CHARS


@dataclass(frozen=True)
class Batch:
    """The rows of a batch, whichever library holds them.

    Attributes:
        given: the batch as it came in.
        names: the names of its columns.
        with_columns: gives a batch of the same kind with more columns, by their values and types.
    """

    given: Any
    names: list[str]
    with_columns: Callable[[Any, Mapping[str, list[Any]], Fields], Any]

    def column(self, name: str) -> Any:
        """A column, which holds a value for each row; an InputError if there is none of this name, or several."""
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
        return self.with_columns(self.given, columns, {prefix + name: kind for name, kind in fields.items()})


def _dict(given: Mapping[str, Any], columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
    """A dict with more columns, as arrays if any of its own is one, else as lists."""
    if any(is_of(column, np.ndarray) for column in given.values()):
        return {**given} | {name: _array(columns[name], kind) for name, kind in kinds.items()}
    return {**given, **columns}


def _pandas(given: Any, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
    """A DataFrame of pandas with more columns, under the same index, of types that hold nulls."""
    import pandas as pd

    types: Any = {"string": "string", "double": "float64", "int64": "Int64", "bool": "boolean"}
    return given.assign(
        **{name: pd.Series(columns[name], given.index, types.get(kind, "object")) for name, kind in kinds.items()}
    )


def _polars(given: Any, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
    """A DataFrame of polars with more columns."""
    import polars as pl

    flat: Any = {"string": pl.String, "double": pl.Float64, "int64": pl.Int64, "bool": pl.Boolean}.__getitem__
    types = {name: nested_type(kind, flat, pl.List, pl.Struct) for name, kind in kinds.items()}
    return given.with_columns([pl.Series(name, columns[name], kind) for name, kind in types.items()])


def _arrow(given: Any, columns: Mapping[str, list[Any]], kinds: Fields) -> Any:
    """A Table or a RecordBatch of pyarrow with more columns."""
    import pyarrow as pa

    for name, kind in kinds.items():
        given = given.append_column(name, pa.array(columns[name], type=arrow_type(kind)))
    return given


# the classes of libraries that hold rows, their attribute of the names of columns, and what adds columns
_KINDS: Sequence[tuple[Mapping[str, Sequence[str]], str, Callable[..., Any]]] = (
    ({"pandas": ("DataFrame",)}, "columns", _pandas),
    ({"polars": ("DataFrame",)}, "columns", _polars),
    ({"pyarrow": ("Table", "RecordBatch")}, "column_names", _arrow),
)
# classes that have not read their rows yet, and which of their methods does
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
        _check_dict(given)
        return Batch(given, list(given), _dict)
    for classes, names, with_columns in _KINDS:
        if is_from(given, classes):
            return Batch(given, list(getattr(given, names)), with_columns)
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
    """Refuse a dict of something else than columns, or of columns of several lengths, with a SettingsError."""
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


def zipped(*columns: Iterable[Any]) -> list[Any]:
    """The values of each row, one of each column; in the place of a row with errors among them, the first of these."""
    rows = zip(*columns, strict=True)
    return [next((value for value in row if isinstance(value, DgmarkError)), row) for row in rows]
