"""What counts as a text, as the token ids of one text, and as several of these. All public functions ask here.

A text is a `str` (numpy's too), or a string scalar of Arrow. Token ids are a list, tuple or range of whole numbers, or
one column of whole numbers of at least 16 bits. Several texts are a sequence, an iterator, or one column of them; rows
of ids may be an array of two dimensions. A column is an array, a tensor or a series of a library that is installed.
"""

import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np
from jaxtyping import Int

from dgmark.arguments.checks import is_of, shown
from dgmark.errors import DgmarkError, InputError, SettingsError, each, without_errors

# what functions take; the columns of other libraries have no type in common
TextOrIds = str | Sequence[int] | np.ndarray | Any
# what `content_of` makes of it
Content = str | Int[np.ndarray, " _"]

MAX_ID = 2**63 - 1
# no tokenizer has so many ids, and a range has each id once
_MAX_RANGE = 2**24
# 8 bits hold bytes
_WIDE = re.compile(r"u?int(16|32|64)")
# the types of columns that may hold texts or lists of ids, as numpy, pandas, Arrow and polars name them
_OF_TEXTS = re.compile(
    r"(large_|fixed_size_|dictionary<values=)*(str(?!uct)|list|array|object|categor|enum|null|(dense|sparse)_union)"
)
_COLUMNS = {
    "numpy": ("ndarray",),
    "torch": ("Tensor",),
    "pandas": ("Series", "Index", "api.extensions.ExtensionArray"),
    "pyarrow": ("Array", "ChunkedArray"),
    "polars": ("Series",),
}
_PANDAS_NULLS = {"pandas": ("api.typing.NAType", "api.typing.NaTType")}
_TABLES = {
    "pandas": ("DataFrame", "MultiIndex"),
    "pyarrow": ("Table", "RecordBatch"),
    "polars": ("DataFrame", "LazyFrame"),
}
_WANTED = (
    "give one text, or the token ids of one text as a list of whole numbers or as an integer array of one dimension "
    "and at least 16 bits"
)
_ONE_TEXT = "this is one text, not a list of texts: give it to detect, or in a list"


# --- one text ---


def content_of(value: TextOrIds) -> Content:
    """One text as a `str`, or the token ids of one text as an array of int64; anything else is a SettingsError."""
    content = _content(value)
    if content is None:
        raise SettingsError(f"{_WANTED}; {_why_not(value)}")
    return content


def ids_of(value: Any) -> Int[np.ndarray, " n"]:
    """The token ids of one text as an array of int64; anything else, as a text, is a SettingsError."""
    content = content_of(value)
    if isinstance(content, str):
        raise SettingsError("this is a text, and token ids are wanted: encode it with the tokenizer")
    return content


def text_of(value: Any) -> str:
    """One text as a plain `str`; anything else, as token ids, is a SettingsError."""
    content = content_of(value)
    if not isinstance(content, str):
        raise SettingsError("these are token ids, and a text is wanted: decode them with the tokenizer")
    return content


def as_text(value: object) -> str | None:
    """A text as a plain `str`; None for anything else."""
    value = _plain(value)
    return str.__str__(value) if is_of(value, str) else None  # whatever a subclass makes of it


def id_of_row(value: object) -> str | None:
    """The id of a row as a text, whole numbers in digits; None for what is neither a text nor a whole number."""
    if type(value) in (str, int):  # what most are, looked at no further
        return str(value)
    value = _plain(value)
    return str(int(value)) if is_id(value) else as_text(value)  # type: ignore[call-overload]


def is_id(value: object) -> bool:
    """Whether a value is a whole number: Python's, or one of numpy's of at least 16 bits."""
    if is_of(value, np.integer):
        return bool(_WIDE.fullmatch(_type_of(value)))
    return is_of(value, int) and not is_of(value, bool)


def is_missing(value: Any) -> bool:
    """Whether a value is a missing one: None, NaN, or what a library has in their place."""
    value = _plain(value)
    if value is None or value is np.ma.masked or is_from(value, _PANDAS_NULLS):
        return True
    return is_of(value, float, np.floating) and bool(value != value)


def sha256_of(content: str | list[int]) -> str:
    """The SHA-256 of a text's UTF-8, or of ids as a JSON list without spaces: which input a row was made from."""
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- several texts ---


def contents_of(values: Any) -> list[Content]:
    """Several texts, or the ids of several, as `content_of` gives each; one text or a table is a SettingsError."""
    return without_errors(contents_or_errors(values))


def contents_or_errors(values: Any) -> list[Content | DgmarkError]:
    """What `contents_of` gives; in the place of an item that is neither a text nor ids, its SettingsError."""
    items = list(enumerate(_items(values)))
    if items and is_id(items[0][1]):
        raise SettingsError(_ONE_TEXT)
    return each(_numbered_content, items)


def _numbered_content(item: tuple[int, Any]) -> Content:
    number, value = item
    content = _content(value)
    if content is None:
        others = ', or give errors="return" to go on with the others' if is_missing(value) else ""
        raise SettingsError(f"text {number} (counted from 0) cannot be used: {_why_not(value)}{others}")
    return content


def _items(values: Any) -> Sequence[Any]:
    """What a sequence, an iterator or a column holds; one text, a table and anything else are refused."""
    if is_column(values):
        if _may_hold_texts(values) or (_dimensions(values) == 1 and not len(values)):
            return list(values)
    elif is_of(values, Sequence, Iterator, KeysView, ValuesView) and not _is_one_value(values):
        return list(values)
    if is_of(values, range) or _content(values) is not None:
        raise SettingsError(_ONE_TEXT)
    raise SettingsError(f"give several texts as a list, or as one column of a table; {_why_not(values)}")


def _is_one_value(value: object) -> bool:
    """Whether the items of a sequence or an iterator are not meant: of a text, bytes or an open file."""
    return is_of(value, str, range, bytes, bytearray, memoryview, io.IOBase, Mapping)


# --- columns of libraries ---


def is_from(value: object, kinds: Mapping[str, Sequence[str]]) -> bool:
    """Whether a value is of one of these classes of libraries: one that is not imported yet has no values."""
    for library, names in kinds.items():
        for name in names:
            found: Any = sys.modules.get(library)
            for part in name.split("."):
                found = getattr(found, part, None)
            if isinstance(found, type) and is_of(value, found):
                return True
    return False


def is_column(value: object) -> bool:
    """Whether a value is an array, a tensor or a series of a library."""
    return is_from(value, _COLUMNS) and not (is_from(value, _TABLES) or is_of(value, np.ma.MaskedArray))


def check_texts(column: Any, name: str) -> None:
    """Refuse a column of neither texts nor lists of ids with an InputError; it may be empty if it is of Arrow."""
    if is_column(column) and not _may_hold_texts(column):
        raise InputError(
            f"column {shown(name)} holds {_type_of(column)}, neither texts nor lists of token ids: name the column of "
            "the texts"
        )


def _may_hold_texts(column: Any) -> bool:
    """Whether the type of a column is that of texts or of lists of ids."""
    pattern = {1: _OF_TEXTS, 2: _WIDE}.get(_dimensions(column))
    return pattern is not None and bool(pattern.match(_type_of(column)))


def _type_of(column: Any) -> str:
    """The type of what a column holds, in small letters: "int64" of numpy, pandas, Arrow, polars and torch alike."""
    kind = getattr(column, "dtype", getattr(column, "type", ""))
    name = kind.name if isinstance(kind, np.dtype) else str(kind)  # whatever the order of its bytes
    return name.lower().removeprefix("torch.").removesuffix("[pyarrow]")


def _dimensions(column: Any) -> int:
    return int(getattr(column, "ndim", 1))


def _plain(value: Any) -> Any:
    """A scalar of Arrow as a value of Python, or as the column that it holds; anything else as it is."""
    if not is_from(value, {"pyarrow": ("Scalar",)}):
        return value
    if hasattr(value, "values"):
        return value.values
    try:
        return value.as_py()
    except UnicodeDecodeError:  # Arrow does not look at the bytes of what it calls a string
        return b""


def _content(value: Any) -> Content | None:
    """A text or ids; None for anything else. A column of ids is refused if some are missing or cannot be read."""
    value = _plain(value)
    if is_of(value, str):
        return str.__str__(value)
    if is_of(value, list, tuple):
        if all(type(item) is int or is_id(item) for item in value) and all(abs(int(item)) <= MAX_ID for item in value):
            return np.array([int(item) for item in value], dtype=np.int64)
    elif is_of(value, range):
        if max(abs(value.start), abs(value.stop), abs(value.step)) <= MAX_ID and len(value) <= _MAX_RANGE:
            return np.arange(value.start, value.stop, value.step, dtype=np.int64)
    elif is_column(value) and _dimensions(value) == 1:
        if _WIDE.fullmatch(_type_of(value)):
            return _ids_of_column(value)
        if is_of(value, np.ndarray) and not value.size:  # np.array([]) has the type float64
            return np.zeros(0, dtype=np.int64)
    return None


def _ids_of_column(column: Any) -> Int[np.ndarray, " n"] | None:
    """The ids of a column of whole numbers; None if one is larger than any id."""
    try:
        if is_from(column, {"torch": ("Tensor",)}):
            ids = column.cpu().resolve_neg().numpy()
        elif is_from(column, {"pyarrow": ("Array",)}):
            ids = column.to_numpy(zero_copy_only=False)
        else:
            ids = column if is_of(column, np.ndarray) else column.to_numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:  # a tensor that is sparse, traced, or on no device
        reason = str(error).partition("\n")[0]
        raise SettingsError(f"these token ids cannot be used: their tensor does not give them ({reason})") from None
    if ids.dtype.kind not in "iu":  # libraries give such numbers with their nulls as others, or as objects
        missing = [is_missing(item) for item in column]
        if True in missing:
            raise SettingsError(
                f"these token ids cannot be used: row {missing.index(True)} (counted from 0) is missing; leave it out"
            )
    return None if ids.size and int(ids.max()) > MAX_ID else np.array(ids, dtype=np.int64)


# --- what is refused ---


def _why_not(value: Any) -> str:
    """Why this is neither a text nor token ids: a sentence for each kind of mistake."""
    value = _plain(value)
    kind = type(value).__name__
    if is_missing(value):
        return f"it is missing ({value}): leave it out"
    if is_of(value, bytes, bytearray, memoryview) or (is_column(value) and _type_of(value) in ("int8", "uint8")):
        return "these are bytes: decode them to a text first, with bytes.decode(), or give token ids of 16 bits or more"
    if is_of(value, Mapping) or is_from(value, _TABLES):
        return "this is a mapping or a table: give what one of its keys or columns holds, such as texts['text']"
    if is_of(value, os.PathLike):
        return "this is a path: give the text that dgmark.read_document reads, or score the file with detect_file"
    if is_column(value):
        if _may_hold_texts(value):
            return f"this is a {kind} of texts or lists: score what it holds together, with detect_many"
        return (
            f"this is a {kind} of {_type_of(value)} in {_dimensions(value)} dimensions, and token ids are whole "
            "numbers of at least 16 bits in one"
        )
    if is_of(value, list, tuple):
        place, wrong = next(((index, item) for index, item in enumerate(value) if not is_id(item)), (None, None))
        if place is None:
            return f"a number in this {kind} is larger than any token id"
        if is_of(_plain(wrong), str, list, tuple) or is_column(_plain(wrong)):
            return f"this is a {kind} of texts or lists: score what it holds together, with detect_many"
        return f"item {place} (counted from 0) of this {kind} is {shown(wrong, 60)}, not a whole number"
    return f"this is {shown(value, 60)}, of type {kind}"
