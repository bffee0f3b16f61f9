"""Batches of rows of several libraries: their columns are read, and a batch of the same kind with more columns made.

A batch that comes in is never changed: those of Ray Data are views of memory that others read, too.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from dgmark.arguments.checks import is_of, shown
from dgmark.arguments.column_names import Fields, check_added, check_named
from dgmark.arguments.contents import Content, check_texts, content_of, id_of_row, is_column, is_from, is_missing
from dgmark.columns.row_schema import numpy_column, pandas_column, polars_type, prefixed
from dgmark.errors import DgmarkError, InputError, SettingsError, each
from dgmark.rows.parquet_sink import arrow_type
from dgmark.rows.sources import MAX_CHARS

_PANDAS, _POLARS = {"pandas": ("DataFrame",)}, {"polars": ("DataFrame",)}
_ARROW = {"pyarrow": ("Table", "RecordBatch")}


def _names_of(batch: Any) -> list[str]:
    """The names of the columns of a batch.

    Raises:
        SettingsError: it is none.
    """
    if is_of(batch, Mapping):
        _check_dict(batch)
        return list(batch)
    if not is_from(batch, {**_PANDAS, **_POLARS, **_ARROW}):
        raise SettingsError(
            "a batch is a dict of arrays or lists, a DataFrame of pandas or polars, or a Table or RecordBatch of "
            f"pyarrow, not {shown(type(batch).__name__)}"
        )
    return list(batch.column_names if is_from(batch, _ARROW) else batch.columns)


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


def column_of(batch: Any, name: str) -> Any:
    """A column, which holds a value for each row.

    Raises:
        InputError: the batch has no such column, or several.
        SettingsError: it is not a batch.
    """
    check_named(_names_of(batch), name)
    return batch.column(name) if is_from(batch, _ARROW) else batch[name]


def contents_of_column(batch: Any, name: str) -> list[Content | DgmarkError]:
    """The texts, or the token ids of texts, of a column; in the place of what is neither, the error of its row.

    Raises:
        InputError: the batch has no such column, or one of another type, such as of numbers.
        SettingsError: it is not a batch.
    """
    column = column_of(batch, name)
    values = list(column)
    if not all(map(is_missing, values)):
        check_texts(column, name)
    return each(_content_of_row, values)


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


def ids_of_column(batch: Any, name: str) -> list[str | DgmarkError]:
    """The ids of rows as texts; in the place of what names no row, or several rows of the batch, the error of its row.

    Raises:
        InputError: the batch has no such column.
    """
    ids = [id_of_row(value) for value in column_of(batch, name)]
    times = Counter(ids)
    found: list[str | DgmarkError] = []
    for one in ids:
        if one is None:
            found.append(InputError(f"the row has no id: give each row a text or a whole number in column {name}"))
        elif times[one] > 1:
            found.append(InputError(f"{times[one]} rows have the id {shown(one)}: give each row its own id"))
        else:
            found.append(one)
    return found


def with_errors_of(others: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The values of rows; where another value of the row, such as its id, is an error, that error."""
    return [one if isinstance(one, DgmarkError) else value for one, value in zip(others, values, strict=True)]


def with_results(
    batch: Any, results: Sequence[object], fields: Fields, prefix: str, left_out: Collection[str] = ()
) -> Any:
    """A batch of the same kind with the columns of results, of which each field is an attribute.

    Args:
        batch: the batch.
        results: what was made of each row; an error in the place of one gives nulls and its `error`.
        fields: the columns.
        prefix: what their names begin with.
        left_out: columns that hold nulls.
    """
    shared = [name for name in fields if name != "error" and name not in left_out]
    rows = [
        {"error": str(one)} if isinstance(one, DgmarkError) else {name: getattr(one, name) for name in shared}
        for one in results
    ]
    columns = {prefix + name: [row.get(name) for row in rows] for name in fields}
    return _with_columns(batch, columns, prefixed(fields, prefix))


def _with_columns(batch: Any, columns: Mapping[str, Sequence[Any]], fields: Fields) -> Any:
    """A batch of the same kind with more columns, of these types."""
    if is_of(batch, Mapping):
        as_arrays = any(is_of(value, np.ndarray) for value in batch.values())
        return {**batch} | {
            name: numpy_column(columns[name], kind) if as_arrays else list(columns[name])
            for name, kind in fields.items()
        }
    if is_from(batch, _PANDAS):
        return batch.assign(**{name: pandas_column(columns[name], kind, batch.index) for name, kind in fields.items()})
    if is_from(batch, _POLARS):
        import polars as pl

        return batch.with_columns([pl.Series(name, columns[name], polars_type(kind)) for name, kind in fields.items()])
    import pyarrow as pa

    for name, kind in fields.items():
        batch = batch.append_column(name, pa.array(columns[name], type=arrow_type(kind)))
    return batch


def check_results_fit(batch: Any, fields: Fields, prefix: str) -> None:
    """Refuse a batch to which the columns of results cannot be added, before they are made.

    Raises:
        InputError: it has a column of one of their names.
        SettingsError: it is not a batch.
    """
    check_added(_names_of(batch), prefixed(fields, prefix))
