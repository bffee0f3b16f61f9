"""Why a value is no text and no token ids, and what to give in its place, in a sentence."""

import array
import io
import mmap
import os
import pickle
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from dgmark.arguments.checks import is_of, shown
from dgmark.arguments.columns import library_of
from dgmark.arguments.type_checks import is_from, is_id

WANTED = (
    "give one text, or the token ids of one text as a list of whole numbers or as an integer array of one dimension "
    "and at least 16 bits"
)
IS_ONE_TEXT = "this is one text, not a list of texts: give it to detect, or in a list"
_SEVERAL = "give several texts as a list, or as one column of a table"
_BYTES = (bytes, bytearray, memoryview, mmap.mmap, pickle.PickleBuffer, io.BytesIO, array.array, np.bytes_)
_ARROW_BYTES = ("Buffer", "BinaryScalar", "LargeBinaryScalar", "BinaryViewScalar", "FixedSizeBinaryScalar")
_SHOWN = 12  # names of columns


def is_bytes(value: object) -> bool:
    """Whether a value holds bytes, or numbers that may be bytes."""
    return is_of(value, *_BYTES) or is_from(value, "pyarrow", *_ARROW_BYTES)


def is_open_file(value: object) -> bool:
    """Whether a value is an open file, whose lines are not meant as texts."""
    return is_of(value, io.IOBase)


def is_mapping(value: object) -> bool:
    """Whether a value is a mapping or a table, whose names or columns are not texts."""
    return names_of(value) is not None


def names_of(value: Any) -> list[object] | None:
    """The names of the columns of a table, or the keys of a mapping; None for anything else."""
    if is_from(value, "pandas", "DataFrame") or is_from(value, "polars", "DataFrame"):
        return list(value.columns)
    if is_from(value, "polars", "LazyFrame"):
        return []  # they are known once it is collected
    if is_from(value, "pyarrow", "Table", "RecordBatch"):
        return list(value.column_names)
    if is_from(value, "pyarrow", "StructArray", "StructScalar"):
        return [field.name for field in value.type]
    if is_from(value, "polars", "Series") and type(value.dtype).__name__ == "Struct":
        return [field.name for field in value.dtype.fields]
    if is_of(value, np.ndarray, np.void) and value.dtype.names:
        return list(value.dtype.names)
    if is_of(value, Mapping) or (library_of(value) is None and hasattr(type(value), "keys")):
        return list(islice(iter(value), _SHOWN + 1)) if is_of(value, Iterable) else []
    return None


def why_not(value: Any) -> str:
    """Why this is neither a text nor the ids of one."""
    return _common(value) or _why_not_list(value) or _why_not_column(value) or _neither(value)


def why_not_several(value: Any) -> str:
    """Why these are not several texts."""
    if is_of(value, str, range) or is_from(value, "pyarrow", "StringScalar"):
        return IS_ONE_TEXT
    if is_open_file(value) and not is_bytes(value):
        return (
            "this is an open file: give its lines as a list of texts, with list(file), or the one text of file.read()"
        )
    if is_of(value, set, frozenset):
        return "this is a set, which has no order to give verdicts in: give a list of texts"
    library = library_of(value)
    if library is not None and library.ids(value) is not None:
        return IS_ONE_TEXT
    return f"{_SEVERAL}; {_common(value) or _why_not_column(value) or _neither(value)}"


def _common(value: Any) -> str:
    """Why a value is no text, whatever was wanted; "" if there is no special reason."""
    if is_missing(value):
        return f"it is missing ({value}): leave it out"
    if is_of(value, array.array):
        return (
            f"this is an array of bytes or numbers ({shown(value.typecode)}): if it holds token ids, give its tolist()"
        )
    if is_bytes(value):
        return "these are bytes: decode them to a text first, with bytes.decode()"
    if is_of(value, os.PathLike):
        return (
            "this is a path: give the text that dgmark.read_document reads, or score the file with dgmark.detect_file"
        )
    if is_open_file(value):
        return "this is an open file: give the text of file.read()"
    names = names_of(value)
    if names is not None:
        return _which_column(names, is_of(value, Mapping))
    if type(value).__module__.startswith("dgmark.") and is_of(getattr(value, "text", None), str):
        return f"this is a {type(value).__name__}: give its .text"
    return ""


def _which_column(names: Sequence[object], mapping: bool) -> str:
    what, inside = ("a mapping", "keys") if mapping else ("a table", "columns")
    if not names:
        return f"this is {what}: give one of its {inside}, such as the one that holds the texts"
    shown = ", ".join(map(_shown, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    best = "text" if "text" in [str(name) for name in names] else names[0]
    values = ", or its values, with list(texts.values())" if mapping else ""
    return (
        f"this is {what} with the {inside} {shown}: give what one of them holds, such as texts[{_shown(best)}]{values}"
    )


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, or what a library has in their place."""
    if value is None or value is np.ma.masked or is_from(value, "pandas.api.typing", "NAType", "NaTType"):
        return True
    if is_of(value, float, np.floating):
        return bool(value != value)
    return is_from(value, "pyarrow", "Scalar") and not value.is_valid


def _why_not_list(value: Any) -> str:
    """Why a list, a tuple or a range does not hold ids."""
    if is_of(value, range):
        return f"this is {_shown(value)}, which is longer than any vocabulary"
    if not is_of(value, list, tuple):
        return ""
    number, wrong = next(((number, one) for number, one in enumerate(value) if not is_id(one)), (0, None))
    if is_of(wrong, str, list, tuple) or is_from(wrong, "pyarrow", "StringScalar") or library_of(wrong) is not None:
        return (
            f"this is a {type(value).__name__} of texts or lists: score them one by one, or together with detect_many"
        )
    if wrong is None and value and is_id(value[0]):
        return "a number in this list is larger than any token id"
    return f"item {number} (counted from 0) of this {type(value).__name__} is {_shown(wrong)}, not a whole number"


def _why_not_column(value: Any) -> str:
    """Why an array, a tensor or a series holds no ids."""
    library = library_of(value)
    if library is None:
        return ""
    if library.items(value) is not None:
        return f"this is {_described(value)}: score what it holds one by one, or together with detect_many"
    dtype = str(getattr(value, "dtype", getattr(value, "type", ""))).removeprefix("torch.").lower()
    if getattr(value, "is_sparse", False) or getattr(value, "is_nested", False):
        return f"this is {_described(value)} whose numbers do not stand one behind the other: give its to_dense()"
    if getattr(value, "is_meta", False):
        return f"this is {_described(value)} on the device meta, which holds no numbers"
    if any(name in dtype for name in ("int8", "binary", "bytes", "|s")):
        return f"this is {_described(value)}, and 8 bits hold bytes: decode a text, or convert token ids to int64"
    if getattr(value, "ndim", 1) == 0:
        return f"this is {_described(value)} without a dimension: give its item()"
    return f"this is {_described(value)}: convert what it holds to texts, or to whole numbers of 64 bits"


def _neither(value: object) -> str:
    return f"this is {_described(value)}, neither a text nor token ids"


def _described(value: object) -> str:
    """A value by its type, and by that of what it holds."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    article = "an" if name[0] in "aeiouAEIO" else "a"
    held = getattr(value, "dtype", getattr(value, "type", "")) if library_of(value) else ""
    number = f" ({shown(value, 40)})" if kind in (int, float, bool, complex) else ""
    return f"{article} {name}{f' of {held}' if str(held) else ''}{number}"


def _shown(value: object) -> str:
    return shown(value, 60) if type(value) in (str, int, float, bool, bytes, range, type(None)) else _described(value)
