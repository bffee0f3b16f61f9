"""The reader: turns a text, or a response's token ids, into the tokens to score and their positions.

Special tokens are not scored. Ids are read up to the first end token; a text is not cut there, since whoever can put an
end token into a text could hide everything behind it. Knows the key's tokenizer and vocabulary, not its groups. The
paper takes token ids as given.
"""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from dgmark.arguments import several, whole
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import ModelNotFound, SettingsError
from dgmark.watermark.groups import check_ids
from dgmark.watermark.key import WatermarkKey

TextOrIds = str | Sequence[int] | np.ndarray
Ranges = Sequence[tuple[int, int]]

# characters that the edge of a span is moved at most: scripts without spaces have no words to find
_MAX_WORD = 32
_WANTED = "give one text, or the token ids of one text as a list of whole numbers"


@dataclass(frozen=True)
class ScoredIds:
    """The scored tokens.

    Attributes:
        ids: their token ids.
        positions: their positions among all tokens, 0-based and ascending.
    """

    ids: Int[np.ndarray, " n"]
    positions: Int[np.ndarray, " n"]


class Reader:
    """Reads texts and ids for the keys of one tokenizer.

    Args:
        key: any of these keys; it names the tokenizer and the size of the group table.
        tokenizer: the model's tokenizer, or its folder or file; by default the one the key names, loaded when first
            needed.

    Raises:
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(self, key: WatermarkKey, tokenizer: Tokenizer | str | None = None) -> None:
        self._key = key
        if tokenizer is not None:
            self.tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
            key.check_tokenizer(self.tokenizer)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            ModelNotFound: the tokenizer that the key names is unavailable.
            TokenizerMismatch: the tokenizer that the key names has changed.
        """
        spec = self._key.spec
        try:
            tokenizer = load_tokenizer(spec.tokenizer)
        except ModelNotFound as error:
            raise ModelNotFound(
                f"the key names the tokenizer {spec.tokenizer!r}, which is unavailable: give the model's folder, "
                "tokenizer.json or GGUF file as the tokenizer (--tokenizer); its fingerprint is "
                f"{spec.tokenizer_fingerprint}"
            ) from error
        self._key.check_tokenizer(tokenizer)
        return tokenizer

    def read(self, text_or_ids: TextOrIds, only: Ranges | None = None) -> ScoredIds:
        """Read the scored tokens of a text, or of the ids of one response.

        Args:
            text_or_ids: the text or ids.
            only: ranges [start, end) to score, in characters (in indices for ids); tokens that straddle an edge are
                left out.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is neither a text nor ids, or a range is empty or lies outside the text.
        """
        if only is None:
            return self.read_many([text_or_ids])[0]
        return _inside(*self.locate(text_or_ids), only, len(text_or_ids))

    def read_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[ScoredIds]:
        """Read several texts or responses as `read` does, encoding the texts together.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is one text instead of several, or an item is neither a text nor ids.
        """
        items = several_texts(texts_or_ids)
        encoded = iter(self.tokenizer.encode_batch([item for item in items if isinstance(item, str)]) or [])
        return [
            self.scored(np.array(next(encoded), dtype=np.int64) if isinstance(item, str) else self._response(item))
            for item in items
        ]

    def locate(self, text_or_ids: TextOrIds) -> tuple[ScoredIds, Int[np.ndarray, "n 2"]]:
        """Read as `read` does, with the characters [start, end) that each token covers (the indices for ids)."""
        ids, offsets = self.encode(text_or_ids)
        scored = self.scored(ids)
        return scored, offsets[scored.positions]

    def encode(self, text_or_ids: TextOrIds) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, "n 2"]]:
        """All tokens with their offsets, including the tokens that are not scored."""
        if isinstance(text_or_ids, str):
            encoding = self.tokenizer.encode_with_offsets(text_or_ids)
            return np.array(encoding.ids, dtype=np.int64), np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        ids = self._response(text_or_ids)
        return ids, np.arange(len(ids))[:, None] + np.arange(2)

    def scored(self, ids: Int[np.ndarray, " n"]) -> ScoredIds:
        """Those of all tokens that are scored."""
        positions = self._is_scored[ids].nonzero()[0]
        return ScoredIds(ids[positions], positions)

    def _response(self, ids: Sequence[int] | np.ndarray) -> Int[np.ndarray, " n"]:
        """The ids up to the first end token, checked."""
        array = _flat(ids)
        check_ids(array, self._key.spec.table_size)
        ends = self._is_end[array].nonzero()[0]
        return array[: ends[0]] if len(ends) else array

    @cached_property
    def _is_end(self) -> Bool[np.ndarray, " vocab"]:
        return self._table_of(self.tokenizer.end_ids)

    @cached_property
    def _is_scored(self) -> Bool[np.ndarray, " vocab"]:
        return ~self._table_of(self.tokenizer.special_ids)

    def _table_of(self, ids: Iterable[int]) -> Bool[np.ndarray, " vocab"]:
        table = np.zeros(self._key.spec.table_size, dtype=bool)
        table[list(ids)] = True
        return table


def several_texts(texts_or_ids: Iterable[TextOrIds]) -> list[TextOrIds]:
    """Several texts or responses as a list.

    Raises:
        SettingsError: they are one text instead of several.
    """
    if isinstance(texts_or_ids, str | bytes):
        raise SettingsError("this is one text, not a list of texts: give it to detect, or in a list")
    return several(texts_or_ids, "texts")


def _inside(tokens: ScoredIds, offsets: Int[np.ndarray, "n 2"], only: Ranges, length: int) -> ScoredIds:
    """The tokens that lie inside one of the ranges."""
    inside = np.zeros(len(tokens.ids), dtype=bool)
    for start, end in checked_ranges(only):
        if not 0 <= start < end <= length:
            raise SettingsError(
                f"range {start}:{end} is not START:END with 0 <= START < END <= {length}, the length of what is scored"
            )
        inside |= (offsets[:, 0] >= start) & (offsets[:, 1] <= end)
    return ScoredIds(tokens.ids[inside], tokens.positions[inside])


def at_words(text: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of characters in order, their edges moved to where words begin and end.

    White space at the edges is left out, and half words become whole ones; ranges never come to overlap.
    """
    moved: list[tuple[int, int]] = []
    for number, (start, end) in enumerate(ranges):
        lowest = moved[-1][1] if moved else 0
        highest = ranges[number + 1][1] - 1 if number + 1 < len(ranges) else len(text)
        start = max(start, lowest)
        while start < end - 1 and text[start].isspace():
            start += 1
        while start < end - 1 and text[end - 1].isspace():
            end -= 1
        first, last = max(lowest, start - _MAX_WORD), min(highest, end + _MAX_WORD)
        while start > first and _within_word(text, start):
            start -= 1
        while end < last and _within_word(text, end):
            end += 1
        moved.append((start, end))
    return moved


def _within_word(text: str, place: int) -> bool:
    """Whether the characters on both sides of a place belong to one word."""
    return all(
        (unicodedata.category(one)[0] in "LMN" or one in "'’_") and unicodedata.east_asian_width(one) not in "WF"
        for one in text[place - 1 : place + 1]
    )


def checked_ranges(only: Ranges) -> list[tuple[int, int]]:
    """The ranges, once checked to be pairs of whole numbers.

    Raises:
        SettingsError: they are not.
    """
    ranges = []
    for pair in several(only, "ranges"):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise SettingsError(f"a range is a pair (start, end), not {pair!r}: give a list of such pairs")
        ranges.append((whole("a range's start", pair[0]), whole("a range's end", pair[1])))
    return ranges


def _flat(ids: object) -> Int[np.ndarray, " n"]:
    try:
        array = np.asarray(ids)
    except (ValueError, OverflowError):  # ragged, or too large for any id
        raise SettingsError(_WANTED + _advice(ids)) from None
    whole = not array.size or np.issubdtype(array.dtype, np.integer)
    if array.ndim != 1 or not whole or isinstance(ids, bytearray):
        raise SettingsError(_WANTED + _advice(ids))
    return array.astype(np.int64)


def _advice(content: object) -> str:
    """What the input is in place of a text or its ids, and what to do with it."""
    if isinstance(content, bytes | bytearray):
        return "; these are bytes: decode them to a text first, with bytes.decode()"
    if isinstance(content, os.PathLike):
        return "; this is a path: give the text that dgmark.read_document reads, or score it with dgmark.detect_file"
    if isinstance(content, list | tuple):
        return "; score several texts one by one, or together with detect_many"
    return f", not a {type(content).__name__}"
