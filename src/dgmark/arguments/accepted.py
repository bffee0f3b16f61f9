"""What counts as a text, as the token ids of one text, and as several of these: an allow-list.

A text is a `str` (numpy's too), or a string scalar of Arrow. Token ids are a list, tuple or range of whole numbers, or
an integer array of one dimension and at least 16 bits (`columns.py`). Several texts are a sequence, an iterator, or one
column of them; rows of ids may be an array of two dimensions.
"""

from collections.abc import Iterator, KeysView, Sequence, ValuesView
from typing import Any

import numpy as np
from jaxtyping import Int

from dgmark.arguments.checks import is_of
from dgmark.arguments.columns import MAX_ID, library_of
from dgmark.arguments.refusals import IS_ONE_TEXT, WANTED, is_bytes, is_mapping, is_open_file, why_not, why_not_several
from dgmark.arguments.type_checks import is_from, is_id
from dgmark.errors import SettingsError, without_errors

# what functions take; the columns of other libraries have no type in common
TextOrIds = str | Sequence[int] | np.ndarray | Any
# what `content_of` makes of it
Content = str | Int[np.ndarray, " n"]

# no tokenizer has so many ids, and a range has each id once
_MAX_RANGE = 2**24


def content_of(value: TextOrIds) -> Content:
    """One text as a plain `str`, or the token ids of one text as an array of int64.

    Raises:
        SettingsError: it is neither.
    """
    content = _content(value)
    if content is None:
        raise SettingsError(f"{WANTED}; {why_not(value)}")
    return content


def ids_of(value: Any) -> Int[np.ndarray, " n"]:
    """The token ids of one text as an array of int64, where a text will not do.

    Raises:
        SettingsError: they are none.
    """
    content = content_of(value)
    if isinstance(content, str):
        raise SettingsError("this is a text, and token ids are wanted: encode it with the tokenizer")
    return content


def text_of(value: Any) -> str:
    """One text as a plain `str`, where ids will not do.

    Raises:
        SettingsError: it is none.
    """
    content = content_of(value)
    if not isinstance(content, str):
        raise SettingsError("these are token ids, and a text is wanted: decode them with the tokenizer")
    return content


def contents_of(values: Any) -> list[Content]:
    """Several texts, or the token ids of several texts, each as `content_of` gives it.

    Raises:
        SettingsError: this is one text or a table, or an item is neither a text nor ids.
    """
    return without_errors(contents_or_errors(values))


def contents_or_errors(values: Any) -> list[Content | SettingsError]:
    """What `contents_of` gives; in the place of an item that is neither a text nor ids, the error that says why.

    Raises:
        SettingsError: this is one text or a table.
    """
    contents: list[Content | SettingsError] = []
    for number, item in enumerate(_items(values)):
        if number == 0 and is_id(item):
            raise SettingsError(IS_ONE_TEXT)
        try:
            content = _content(item)
            problem = "" if content is not None else why_not(item)
        except SettingsError as error:  # a column of ids, of which some are missing
            content, problem = None, str(error)
        if content is None:
            contents.append(SettingsError(f"text {number} (counted from 0) cannot be used: {problem}"))
        else:
            contents.append(content)
    return contents


def as_text(value: object) -> str | None:
    """A text as a plain `str`; None for anything else."""
    if is_of(value, str):
        return str.__str__(value)  # whatever a subclass makes of it
    if is_from(value, "pyarrow", "StringScalar", "LargeStringScalar", "StringViewScalar", "DictionaryScalar"):
        try:
            text = value.as_py()  # type: ignore[attr-defined]
        except UnicodeDecodeError:  # Arrow does not look at the bytes of what it calls a string
            return None
        return text if type(text) is str else None
    return None


def as_ids(value: object) -> Int[np.ndarray, " n"] | None:
    """The token ids of one text as an array of int64; None for anything else.

    Raises:
        SettingsError: it is a column of ids of which some are missing or cannot be read.
    """
    if is_of(value, list, tuple):
        return _ids_of_list(value)  # type: ignore[arg-type]
    if is_of(value, range):
        return _ids_of_range(value)  # type: ignore[arg-type]
    library = library_of(value)
    return None if library is None else library.ids(value)


def _content(value: object) -> Content | None:
    text = as_text(value)
    return as_ids(value) if text is None else text


def _ids_of_list(values: Sequence[Any]) -> Int[np.ndarray, " n"] | None:
    if not all(type(value) is int or is_id(value) for value in values):
        return None
    try:
        return np.array([int(value) for value in values], dtype=np.int64)
    except OverflowError:  # larger than any id
        return None


def _ids_of_range(values: range) -> Int[np.ndarray, " n"] | None:
    ends = values.start, values.stop, values.step
    if max(map(abs, ends)) > MAX_ID or len(values) > _MAX_RANGE:
        return None
    return np.arange(*ends, dtype=np.int64)


def _items(values: Any) -> Sequence[Any]:
    """What a sequence, an iterator or a column holds.

    Raises:
        SettingsError: this is one of these.
    """
    library = library_of(values)
    items = None if library is None else library.items(values)
    if items is not None:
        return items
    listed = is_of(values, Sequence, Iterator, KeysView, ValuesView) and not is_of(values, str, range)
    if library is not None or not listed or is_bytes(values) or is_mapping(values) or is_open_file(values):
        raise SettingsError(why_not_several(values))
    return list(values)
