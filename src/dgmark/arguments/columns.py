"""Columns: arrays, tensors and series of numpy, torch, pandas, Arrow and polars, that hold token ids or texts.

Each library is asked by its own methods, never by the buffer protocol or `__array__`: these give the bytes of anything
as numbers, which would be scored as ids.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from dgmark.arguments.checks import is_of, shown
from dgmark.arguments.type_checks import is_from
from dgmark.errors import InputError, SettingsError

MAX_ID = 2**63 - 1
# name and Arrow's type of each column that is added to a table
Fields = Mapping[str, str]
# the types of token ids; 8 bits hold bytes
_WIDE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (16, 32, 64))
_ARROW_TEXTS = ("string", "large_string", "string_view", "null")
_POLARS_TEXTS = ("String", "Categorical", "Enum", "Object", "Null")
_PANDAS_TEXTS = ("StringDtype", "CategoricalDtype")

Ids = Int[np.ndarray, " n"]


class Library(NamedTuple):
    """How the columns of a library are read.

    Attributes:
        has: whether a value is a column of the library.
        ids: the ids in a column; None if it does not hold the ids of one text.
        items: the texts, or the lists of ids, in a column; None if it holds neither.
    """

    has: Callable[[object], bool]
    ids: Callable[[Any], Ids | None]
    items: Callable[[Any], Sequence[Any] | None]


def library_of(value: object) -> Library | None:
    """The library whose column a value is; None for any other value."""
    return next((library for library in _LIBRARIES if library.has(value)), None)


def check_named(names: Sequence[object], name: str, where: str = "the batch") -> None:
    """Refuse a table of which no column, or several, have a name.

    Args:
        names: the names of its columns.
        name: the name.
        where: the table, for the error.

    Raises:
        InputError: none has, or several have.
    """
    times = list(names).count(name)
    if not times:
        raise InputError(
            f"{where} has no column {shown(name)}: the columns are {', '.join(map(shown, names)) or 'none'}; name one "
            "of them"
        )
    if times > 1:
        raise InputError(f"{where} has {times} columns of the name {shown(name)}: rename all but one")


def check_texts(column: Any, name: str) -> None:
    """Refuse a column of a type that holds neither texts nor lists of token ids.

    Args:
        column: the column, which may be empty if it is one of Arrow.
        name: its name, for the error.

    Raises:
        InputError: it is one.
    """
    library = library_of(column)
    if library is not None and library.items(column) is None:
        held = getattr(column, "dtype", getattr(column, "type", "objects"))
        raise InputError(
            f"column {shown(name)} holds {held}, neither texts nor lists of token ids: name the column of the texts"
        )


def check_added(names: Sequence[object], added: Collection[str]) -> None:
    """Refuse a table that has a column of the name of one that is to be added.

    Raises:
        InputError: it has.
    """
    taken = [name for name in names if name in added]
    if taken:
        raise InputError(
            f"there are columns {', '.join(map(shown, taken))} already, which would be added: give a prefix for the "
            "added ones, or rename these"
        )


def _without_missing(missing: Sequence[bool]) -> None:
    """Refuse ids of which some are missing.

    Raises:
        SettingsError: some are.
    """
    if True in missing:
        raise SettingsError(
            f"these token ids cannot be used: row {missing.index(True)} (counted from 0) is missing; leave it out"
        )


# --- numpy ---


def _is_numpy(value: object) -> bool:
    return is_of(value, np.ndarray) and not is_of(value, np.ma.MaskedArray)


def _ids_of_numpy(values: np.ndarray) -> Ids | None:
    if values.ndim != 1:
        return None
    if not values.size and values.dtype == np.float64:  # what np.array([]) is
        return np.zeros(0, dtype=np.int64)
    if values.dtype.name not in _WIDE or (values.size and int(values.max()) > MAX_ID):
        return None
    return np.array(values, dtype=np.int64)


def _items_of_numpy(values: np.ndarray) -> Sequence[Any] | None:
    if values.ndim == 2 and values.dtype.name in _WIDE:
        return list(values)
    return list(values) if values.ndim == 1 and (values.dtype.kind in "OUT" or not values.size) else None


# --- torch ---


def _is_torch(value: object) -> bool:
    return is_from(value, "torch", "Tensor")


def _ids_of_torch(values: Any) -> Ids | None:
    plain = _plain_tensor(values)
    return None if plain is None else _ids_of_numpy(plain)


def _items_of_torch(values: Any) -> Sequence[Any] | None:
    plain = _plain_tensor(values)
    return None if plain is None else _items_of_numpy(plain)


def _plain_tensor(values: Any) -> np.ndarray | None:
    """The numbers of a tensor on any device; None if they are no ids, or stand nowhere.

    Raises:
        SettingsError: the tensor does not give them, as one that is traced.
    """
    name = str(values.dtype).removeprefix("torch.")
    if name not in _WIDE or values.layout is not sys.modules["torch"].strided or values.is_meta or values.is_nested:
        return None
    try:
        plain: np.ndarray = values.cpu().resolve_neg().numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(f"the numbers of this tensor cannot be read ({reason}): give its tolist()") from None
    return plain


# --- Arrow ---


def _is_arrow(value: object) -> bool:
    return is_from(value, "pyarrow", "Array", "ChunkedArray")


def _ids_of_arrow(values: Any) -> Ids | None:
    if str(values.type) not in _WIDE:
        return None
    _without_missing(values.is_null().to_pylist() if values.null_count else ())
    chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in getattr(values, "chunks", [values])]
    return _ids_of_numpy(np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64))


def _items_of_arrow(values: Any) -> Sequence[Any] | None:
    kind = values.type
    inner = getattr(kind, "value_type", None)
    if str(kind) in _ARROW_TEXTS or (str(kind).startswith("dictionary<") and str(inner) in _ARROW_TEXTS):
        return list(values)
    # an empty list has the ids of no type
    return list(values) if "list" in str(kind) and str(inner) in _WIDE else None


def _is_arrow_row(value: object) -> bool:
    return is_from(value, "pyarrow", "ListScalar", "LargeListScalar", "FixedSizeListScalar", "ListViewScalar")


def _ids_of_arrow_row(value: Any) -> Ids | None:
    return None if value.values is None else _ids_of_arrow(value.values)


# --- polars ---


def _is_polars(value: object) -> bool:
    return is_from(value, "polars", "Series")


def _ids_of_polars(values: Any) -> Ids | None:
    if str(values.dtype).lower() not in _WIDE:
        return None
    _without_missing(values.is_null().to_list() if values.null_count() else ())
    return _ids_of_numpy(values.to_numpy())


def _items_of_polars(values: Any) -> Sequence[Any] | None:
    name = type(values.dtype).__name__
    if name in _POLARS_TEXTS or str(getattr(values.dtype, "inner", "")).lower() in _WIDE:
        return list(values)
    return None


# --- pandas ---


def _is_pandas(value: object) -> bool:
    if is_from(value, "pandas", "MultiIndex"):
        return False
    return is_from(value, "pandas", "Series", "Index") or is_from(value, "pandas.api.extensions", "ExtensionArray")


def _ids_of_pandas(values: Any) -> Ids | None:
    if is_from(values.dtype, "pandas", "ArrowDtype"):
        return _ids_of_arrow(_arrow_of_pandas(values))
    name = str(values.dtype).lower()
    if name not in _WIDE:
        return None
    _without_missing(values.isna().tolist())
    return _ids_of_numpy(values.to_numpy(dtype=name))


def _items_of_pandas(values: Any) -> Sequence[Any] | None:
    if is_from(values.dtype, "pandas", "ArrowDtype"):
        return _items_of_arrow(_arrow_of_pandas(values))
    return list(values) if is_from(values.dtype, "pandas", *_PANDAS_TEXTS) or values.dtype == np.object_ else None


def _arrow_of_pandas(values: Any) -> Any:
    return getattr(values, "array", values).__arrow_array__()


def _no_items(_: Any) -> None:
    return None


_LIBRARIES = (
    Library(_is_numpy, _ids_of_numpy, _items_of_numpy),
    Library(_is_torch, _ids_of_torch, _items_of_torch),
    Library(_is_arrow, _ids_of_arrow, _items_of_arrow),
    Library(_is_arrow_row, _ids_of_arrow_row, _no_items),
    Library(_is_polars, _ids_of_polars, _items_of_polars),
    Library(_is_pandas, _ids_of_pandas, _items_of_pandas),
)
