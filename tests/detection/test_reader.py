"""The reader: which tokens of a text or a response are scored, their positions, and clear errors for other inputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgmark import Detector
from dgmark.arguments.contents import contents_of
from dgmark.detection.reading.reader import Reader, ScoredIds, at_words
from dgmark.errors import ModelNotFound, SettingsError, without_errors
from support.cases import cases
from support.known_keys import builtin_tokenizer, known_key
from support.unchecked import unchecked

KEY = known_key("reader")
END, START, MASK = 0, 1, 2  # of the built-in tokenizer
FIRST = 4  # the ids below are special

READER = Reader(KEY, builtin_tokenizer())


def pairs(tokens: ScoredIds) -> list[tuple[int, int]]:
    """(position, id) of each scored token."""
    return list(zip(tokens.positions.tolist(), tokens.ids.tolist(), strict=True))


any_text = st.text(st.characters(exclude_categories=()), max_size=60)
any_ids = st.lists(st.integers(END, 40) | st.integers(FIRST, 8191), max_size=40)


@given(text=any_text)
@example(text="before<|endoftext|>after")
@example(text="")
@example(text="a lone \ud800 surrogate")
def test_all_tokens_of_a_text_but_special_ones_are_scored(text: str) -> None:
    encoded = builtin_tokenizer().encode(text)
    special = builtin_tokenizer().special_ids
    assert pairs(READER.read(text)) == [(at, token) for at, token in enumerate(encoded) if token not in special]


@given(ids=any_ids)
@example(ids=[])
@example(ids=[END, 5])
@example(ids=[START, 5, MASK, 6, END, 7])
def test_ids_before_the_first_end_token_are_scored(ids: list[int]) -> None:
    ends = builtin_tokenizer().end_ids
    response = ids[: next((at for at, token in enumerate(ids) if token in ends), len(ids))]
    special = builtin_tokenizer().special_ids
    assert pairs(READER.read(ids)) == [(at, token) for at, token in enumerate(response) if token not in special]


@given(items=st.lists(any_text | any_ids, max_size=6))
def test_many_texts_are_read_and_located_as_one_by_one(items: list[str | list[int]]) -> None:
    one_by_one = [pairs(READER.read(item)) for item in items]
    contents = contents_of(items)
    assert [pairs(tokens) for tokens in without_errors(READER.read_many(contents))] == one_by_one
    located = [READER.locate(content) for content in contents]
    assert [pairs(tokens) for tokens in located] == one_by_one
    assert [tokens.offsets.shape for tokens in located] == [(len(read), 2) for read in one_by_one]


def test_the_offsets_of_a_text_are_the_characters_of_its_tokens() -> None:
    text = "The quick brown fox<|pad|> jumps."
    offsets = READER.locate(text).offsets
    assert "".join(text[start:end] for start, end in offsets.tolist()) == "The quick brown fox jumps."


def test_the_offsets_of_ids_are_their_indices() -> None:
    offsets = READER.locate(np.array([START, 5, MASK, 6, END, 7])).offsets
    assert offsets.tolist() == [[1, 2], [3, 4]]


@given(ids=st.lists(st.integers(FIRST, 8191), min_size=1, max_size=30), data=st.data())
def test_only_the_tokens_inside_the_ranges_are_read(ids: list[int], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(ids) - 1))
    end = data.draw(st.integers(begin + 1, len(ids)))
    assert pairs(READER.read(ids, [(begin, end)])) == list(enumerate(ids))[begin:end]


def test_a_token_that_straddles_the_edge_of_a_range_is_left_out() -> None:
    text = "one two three"
    whole, inside = READER.locate(text), READER.read(text, [(1, 8)])
    assert [tuple(pair) for pair in whole.offsets.tolist()] == [(0, 3), (3, 7), (7, 13)]
    assert pairs(inside) == pairs(whole)[1:2]


@pytest.mark.parametrize("wrong", [(0, 14), (5, 5), (-1, 4)])
def test_a_range_outside_the_text_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(SettingsError, match="the length of what is scored"):
        READER.read("one two three", [wrong])


# --- the tokenizer -------------------------------------------------------------------------------


def test_the_tokenizer_that_the_key_names_is_loaded_when_it_is_needed() -> None:
    lost = replace(KEY, spec=replace(KEY.spec, tokenizer="./moved-away"))
    reader = Reader(lost)
    with pytest.raises(
        ModelNotFound, match=r"'\./moved-away', which is unavailable: give the model's folder, .* GGUF .*--tokenizer"
    ):
        reader.read("Some text.")
    assert pairs(Reader(lost, "storyteller").read("Some text.")) == pairs(READER.read("Some text."))


# --- what is neither a text nor ids --------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [["a", "b"], b"a text", Path("text.txt"), None, np.array([1.5]), [[5, 6], [7]]], ids=repr
)
def test_what_is_neither_a_text_nor_ids_is_refused(wrong: Any) -> None:
    with unchecked():
        for read in (READER.read, Detector(KEY).detect):
            with pytest.raises(SettingsError):
                read(wrong)


def test_ids_may_be_any_whole_numbers_of_numpy() -> None:
    ids = np.array([5, 6, 7], dtype=np.uint16)
    assert pairs(READER.read(ids)) == [(0, 5), (1, 6), (2, 7)]
    assert READER.read(ids).ids.dtype == np.int64


@pytest.mark.parametrize(("text", "ranges", "moved"), cases(__file__, "edges"))
def test_edges_are_moved_to_words(text: str, ranges: list[list[int]], moved: list[list[int]]) -> None:
    found = at_words(text, [(start, end) for start, end in ranges])
    assert [[*one] for one in found] == moved
