"""What is a text, what are token ids, what are several of these, and what is refused, with which advice."""

import enum
import itertools
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from dgmark.arguments.contents import content_of, contents_of
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.errors import SettingsError
from dgmark_lab.rule_keys import rule_key
from support.fresh_process import run_fresh
from support.known_keys import builtin_tokenizer, known_key
from support.odd_values import ARRAYS, BYTE_LIKE, PLAIN, TABLES
from support.unchecked import unchecked

KEY = known_key("contents")
IDS, TEXTS = [5, 6, 700], ["The king.", "The sea, é ☃."]
# what scores texts: each has `detect` and `detect_many`
SCORERS: dict[str, Any] = {
    "detector": Detector(KEY, tokenizer=builtin_tokenizer()),
    "keyring": Keyring([KEY, known_key("another")], tokenizer=builtin_tokenizer()),
    "baseline": Detector(rule_key("kgw", KEY), tokenizer=builtin_tokenizer()),
}


class Word(enum.StrEnum):
    KING = "king"


class Number(enum.IntEnum):
    FIVE = 5


class Pair(NamedTuple):
    first: int
    second: int


# --- one text ------------------------------------------------------------------------------------

ARROW_TEXTS = {"string": pa.string(), "large": pa.large_string(), "view": pa.string_view()}


@pytest.mark.parametrize(
    "text",
    [
        "king",
        np.str_("king"),
        Word.KING,
        *(pa.scalar("king", kind) for kind in ARROW_TEXTS.values()),
        pa.array(["king"]).dictionary_encode()[0],
        pd.Series(["king"], dtype="string[pyarrow]")[0],
        pl.Series(["king"])[0],
    ],
    ids=lambda text: type(text).__name__,
)
def test_a_text_is_a_plain_string(text: Any) -> None:
    with unchecked():
        assert content_of(text) == "king"
        assert type(content_of(text)) is str


# --- the ids of one text -------------------------------------------------------------------------

WIDE = [np.dtype(f"{order}{kind}{size}") for order in "<>" for kind in "iu" for size in (2, 4, 8)]
ID_ARRAYS: dict[str, Callable[[], Any]] = {
    "list": lambda: IDS,
    "tuple": lambda: tuple(IDS),
    "named tuple": lambda: Pair(5, 6),
    "range": lambda: range(5, 9, 2),
    "empty": list,
    "numbers of numpy": lambda: [np.int64(5), np.uint16(6), Number.FIVE],
    **{f"numpy {kind.str}": partial(np.array, IDS, kind) for kind in WIDE},
    "numpy with steps": lambda: np.arange(20)[::-3],
    "numpy, read only": lambda: np.frombuffer(b"\5\0\6\0", np.uint16),
    "numpy, empty": lambda: np.array([]),
    **{
        f"torch {kind}": partial(torch.tensor, IDS, dtype=kind)
        for kind in (torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
    },
    "torch with steps": lambda: torch.arange(20)[::3],
    "torch parameter": lambda: torch.nn.Parameter(torch.tensor(IDS), requires_grad=False),
    **{f"Arrow {kind}": partial(pa.array, IDS, kind) for kind in ("int16", "uint32", "int64", "uint64")},
    "Arrow chunks": lambda: pa.chunked_array([[5], [], [6, 700]]),
    "Arrow without chunks": lambda: pa.chunked_array([], pa.int64()),
    "Arrow row of a column of lists": lambda: pa.array([[1], IDS])[1],
    **{f"polars {kind}": partial(pl.Series, IDS, dtype=kind) for kind in (pl.Int16, pl.UInt32, pl.Int64)},
    **{f"pandas {kind}": partial(pd.Series, IDS, dtype=kind) for kind in ("uint16", "Int32", "int64[pyarrow]")},
    "pandas array": lambda: pd.Series(IDS, dtype="Int64").array,
    "pandas index": lambda: pd.Index(IDS),
    "pandas range": lambda: pd.RangeIndex(5, 9),
}


@pytest.mark.parametrize("name", ID_ARRAYS)
def test_ids_are_whole_numbers_of_16_bits_and_more(name: str) -> None:
    with unchecked():
        made = ID_ARRAYS[name]()
        read = content_of(made)
        assert isinstance(read, np.ndarray)
        assert (str(read.dtype), read.ndim) == ("int64", 1)
        listed = made.as_py() if name.startswith("Arrow row") else getattr(made, "to_pylist", lambda: list(made))()
        assert read.tolist() == [int(one) for one in listed]
        for scorer in SCORERS.values():
            expected = scorer.detect(read.tolist())
            assert scorer.detect(made) == expected
            assert scorer.detect_many([made]) == [expected]


def test_ids_are_copied() -> None:
    ids = np.array(IDS)
    read = content_of(ids)
    ids[0] = 99
    assert isinstance(read, np.ndarray)
    assert read.tolist() == IDS


# --- several texts -------------------------------------------------------------------------------

TEXT_COLUMNS: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "deque": lambda: deque(TEXTS),
    "generator": lambda: (text for text in TEXTS),
    "iterator": lambda: itertools.islice(TEXTS, 2),
    "values": lambda: dict(enumerate(TEXTS)).values(),
    "keys": lambda: dict.fromkeys(TEXTS).keys(),
    "numpy": lambda: np.array(TEXTS),
    "numpy objects": lambda: np.array(TEXTS, object),
    "pandas": lambda: pd.Series(TEXTS),
    "pandas, other labels": lambda: pd.Series(TEXTS, index=["x", "y"]),
    "pandas objects": lambda: pd.Series(TEXTS, dtype=object),
    "pandas strings": lambda: pd.Series(TEXTS, dtype="string[pyarrow]"),
    "pandas Arrow": lambda: pd.Series(TEXTS, dtype=pd.ArrowDtype(pa.string())),
    "pandas categories": lambda: pd.Series(TEXTS, dtype="category"),
    "pandas index": lambda: pd.Index(TEXTS),
    "pandas array": lambda: pd.Series(TEXTS).array,
    "pandas column": lambda: pd.DataFrame({"text": TEXTS})["text"],
    **{f"Arrow {name}": partial(pa.array, TEXTS, kind) for name, kind in ARROW_TEXTS.items()},
    "Arrow chunks": lambda: pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    "Arrow dictionary": lambda: pa.array(TEXTS).dictionary_encode(),
    "Arrow column": lambda: pa.table({"text": TEXTS})["text"],
    "Arrow scalars": lambda: list(pa.array(TEXTS)),
    "polars": lambda: pl.Series(TEXTS),
    "polars categories": lambda: pl.Series(TEXTS, dtype=pl.Categorical),
    "polars column": lambda: pl.DataFrame({"text": TEXTS})["text"],
}
if hasattr(np.dtypes, "StringDType"):  # from numpy 2.0 on
    TEXT_COLUMNS["numpy texts of any length"] = lambda: np.array(TEXTS, np.dtypes.StringDType())
LISTS = [IDS, [8, 9, 10]]
ID_COLUMNS: dict[str, Callable[[], Any]] = {
    "lists": lambda: LISTS,
    "numpy rows": lambda: np.array(LISTS, np.uint16),
    "torch rows": lambda: torch.tensor(LISTS),
    "arrays": lambda: [np.array(LISTS[0]), torch.tensor(LISTS[1])],
    "pandas": lambda: pd.Series(LISTS),
    "pandas Arrow": lambda: pd.Series(LISTS, dtype=pd.ArrowDtype(pa.list_(pa.int32()))),
    "Arrow": lambda: pa.array(LISTS),
    "Arrow, large": lambda: pa.array(LISTS, pa.large_list(pa.uint16())),
    "Arrow, of one length": lambda: pa.array(LISTS, pa.list_(pa.int64(), 3)),
    "Arrow chunks": lambda: pa.chunked_array([LISTS[:1], LISTS[1:]]),
    "polars": lambda: pl.Series(LISTS),
    "polars, of one length": lambda: pl.Series(LISTS, dtype=pl.Array(pl.Int64, 3)),
}


@pytest.mark.parametrize("name", TEXT_COLUMNS)
def test_a_column_of_texts_is_scored_as_a_list_of_them(name: str) -> None:
    with unchecked():
        read = contents_of(TEXT_COLUMNS[name]())
        assert read == TEXTS
        assert {type(one) for one in read} == {str}
        for scorer in SCORERS.values():
            assert scorer.detect_many(TEXT_COLUMNS[name]()) == scorer.detect_many(TEXTS)


@pytest.mark.parametrize("name", ID_COLUMNS)
def test_a_column_of_ids_is_scored_as_a_list_of_them(name: str) -> None:
    with unchecked():
        for scorer in SCORERS.values():
            assert scorer.detect_many(ID_COLUMNS[name]()) == scorer.detect_many(LISTS)


@pytest.mark.parametrize(
    "empty", [[], (), np.array([]), np.array([], object), pd.Series([]), pa.array([]), pl.Series([])]
)
def test_no_texts_have_no_detections(empty: Any) -> None:
    with unchecked():
        assert SCORERS["detector"].detect_many(empty) == []


# --- what is refused -----------------------------------------------------------------------------

# of `PLAIN`, what is a text or ids
TEXT_NAMES = ("empty", "space", "NUL", "surrogate", "long", "line ends")
NO_CONTENT = {**{name: make for name, make in PLAIN.items() if name not in (*TEXT_NAMES, "empty list")}, **BYTE_LIKE}
REFUSED = {**NO_CONTENT, **ARRAYS, **TABLES}
NOT_SEVERAL: dict[str, Callable[[], Any]] = {
    **{name: make for name, make in REFUSED.items() if name not in ("list of texts", "nested list", "generator")},
    **{name: PLAIN[name] for name in TEXT_NAMES},
    "range": lambda: range(3),
    "ids": lambda: IDS,
    "numpy ids": lambda: np.array(IDS),
    "torch ids": lambda: torch.tensor(IDS),
    "pandas ids": lambda: pd.Series(IDS),
    "Arrow ids": lambda: pa.array(IDS),
    "polars ids": lambda: pl.Series(IDS),
    "set of texts": lambda: set(TEXTS),
    "pairs": lambda: zip(TEXTS, TEXTS, strict=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_neither_a_text_nor_ids_is_never_scored(name: str) -> None:
    with unchecked():
        for scorer in SCORERS.values():
            with pytest.raises(SettingsError):
                scorer.detect(REFUSED[name]())
            with pytest.raises(SettingsError, match=r"^text 1 \(counted from 0\)|^these token ids"):
                scorer.detect_many(["The king.", REFUSED[name]()])


@pytest.mark.parametrize("name", NOT_SEVERAL)
def test_what_are_not_several_texts_is_never_scored_as_if_it_were(name: str) -> None:
    with unchecked():
        for scorer in SCORERS.values():
            with pytest.raises(SettingsError):
                scorer.detect_many(NOT_SEVERAL[name]())


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (["a", "b"], "this is a list of texts or lists: score what it holds together, with detect_many"),
        (("a", [5]), "this is a tuple of texts or lists"),
        (pd.Series(["a"]), "this is a Series of texts or lists"),
        (memoryview(b"a text"), "these are bytes: decode"),
        (pa.scalar(b"a text"), "these are bytes: decode"),
        (b"a text", r"decode them to a text first, with bytes\.decode\(\)"),
        (Path("text.txt"), "this is a path: give the text that dgmark.read_document reads"),
        (None, "it is missing"),
        (7, r"this is 7, of type int"),
        ([1.5], r"item 0 \(counted from 0\) of this list is 1.5, not a whole number"),
        ([5, True], r"item 1 \(counted from 0\) of this list is True"),
        ([5, np.int8(3)], rf"item 1 \(counted from 0\) of this list is {re.escape(repr(np.int8(3)))}"),
        ([5, 2**70], "larger than any token id"),
        (range(10**12), r"this is range\(0, 1000000000000\), of type range"),
        (np.array(7), "this is a ndarray of int64 in 0 dimensions, and token ids are whole numbers"),
        (np.array([5], np.uint8), "these are bytes: decode .* or give token ids of 16 bits or more"),
        (np.array([1.5]), "this is a ndarray of float64 in 1 dimensions, .* at least 16 bits in one"),
        (torch.empty(2, dtype=torch.int64, device="meta"), "their tensor does not give them"),
        (torch.tensor([5, 0]).to_sparse(), "their tensor does not give them"),
        (pa.array([5, None]), r"row 1 \(counted from 0\) is missing"),
        (pd.Series([5, None], dtype="Int64"), r"row 1 \(counted from 0\) is missing"),
        (pl.Series([5, None]), r"row 1 \(counted from 0\) is missing"),
        ({"text": "a"}, r"this is a mapping or a table: give what one of its keys or columns holds"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)
def test_the_error_says_what_to_do(wrong: Any, advice: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=advice):
        content_of(wrong)


@pytest.mark.parametrize(
    "column",
    [pd.Series, pa.array, pl.Series, lambda texts: np.array(texts, object), list],
    ids=["pandas", "Arrow", "polars", "numpy", "list"],
)
def test_a_missing_text_is_named_by_its_row(column: Callable[[Any], Any]) -> None:
    with (
        unchecked(),
        pytest.raises(
            SettingsError, match=r"text 1 \(counted from 0\) cannot be used: it is missing.*errors=\"return\""
        ),
    ):
        contents_of(column(["a", None, "b"]))


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_mappings_are_asked_for_one_column(name: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match="this is a mapping or a table"):
        contents_of(TABLES[name]())


def test_no_library_is_imported_for_a_text() -> None:
    """The libraries of columns take up to a second to import."""
    code = (
        "import sys; from dgmark.arguments.contents import contents_of; contents_of(['a', [5, 6]])\n"
        "print([name for name in ('pandas', 'polars', 'pyarrow', 'torch') if name in sys.modules])"
    )
    assert run_fresh(code).strip() == "[]"
