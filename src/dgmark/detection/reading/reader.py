"""The reader: turns a text, or a response's token ids, into the tokens to score and their positions.

Special tokens are not scored. Ids are read up to the first end token; a text is not cut there, since whoever can put an
end token into a text could hide everything after it. A language model may read along, and says how surprised it is by
each token. Knows the key's tokenizer and vocabulary, not its groups. The paper takes token ids as given.
"""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.arguments.checks import several, shown, whole
from dgmark.arguments.contents import Content, TextOrIds, content_of
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer, well_formed
from dgmark.detection.reading.pair_weights import Surprisal
from dgmark.detection.reading.surprisal import Offsets, SurprisalModel, checked_surprisal, nats_of_tokens, text_of_ids
from dgmark.errors import (
    DgmarkError,
    ModelFault,
    ModelNotFound,
    SettingsError,
    each,
    together,
    together_or_each,
    without_errors,
)
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import check_ids

Ranges = Sequence[tuple[int, int]]

# characters that the edge of a span is moved at most: scripts without spaces have no words to find
_MAX_WORD = 32
# of so many texts the surprisal is kept, for further questions about them
_TEXTS_KEPT = 16


@dataclass(frozen=True)
class ScoredIds:
    """The scored tokens.

    Attributes:
        ids: their token ids.
        positions: their positions among all tokens, 0-based and ascending.
        surprisal: how surprised a language model is by each; None if none has read the text.
        offsets: the characters [start, end) that each covers, of ids their indices; empty unless they were located.
    """

    ids: Int[np.ndarray, " n"]
    positions: Int[np.ndarray, " n"]
    surprisal: Surprisal | None = None
    offsets: Offsets = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))


class Reader:
    """Reads texts and ids for the keys of one tokenizer, any of which names it and the size of the vocabulary.

    By default the tokenizer is loaded when first needed; another one must be the key's. A language model may read
    along.
    """

    def __init__(
        self,
        key: WatermarkKey,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        surprisal_model: SurprisalModel | None = None,
    ) -> None:
        if surprisal_model is not None and not isinstance(surprisal_model, SurprisalModel):
            raise SettingsError(
                f"a surprisal model is a dgmark.LanguageModel, or has its name, fingerprint and surprisals, not a "
                f"{type(surprisal_model).__name__}"
            )
        self._key, self.surprisal_model = key, surprisal_model
        self._read = dict[str, tuple[Offsets, Float[np.ndarray, " _"]]]()
        if tokenizer is not None:
            self.tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, str | os.PathLike) else tokenizer
            key.check_tokenizer(self.tokenizer)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
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

    def read(self, content: TextOrIds, only: Ranges | None = None) -> ScoredIds:
        """Read the scored tokens of a text or of the ids of one response, or those of some ranges; see
        `Detector.detect`.
        """
        content = content_of(content)
        if only is not None:
            return _inside(self.locate(content), only, len(content))
        return without_errors(self.read_many([content]))[0]

    def read_many(self, contents: Sequence[Content]) -> list[ScoredIds | DgmarkError]:
        """Read several texts or responses as `read` does, encoding the texts together.

        In the place of a text that has no ids, or of a response of wrong ones, stands its error.
        """
        if self.surprisal_model is not None:
            return self._locate_many(contents)
        texts = [content for content in contents if isinstance(content, str)]
        encoded = iter(together_or_each(self.tokenizer.encode_batch, texts))
        ids: list[Any] = [next(encoded) if isinstance(content, str) else content for content in contents]
        return each(lambda read: self.scored(self._checked(read)), ids)

    def _checked(self, ids: Any) -> Int[np.ndarray, " n"]:
        """The ids of a text, which come as a list, or those of a response up to its first end token."""
        return np.array(ids, dtype=np.int64) if isinstance(ids, list) else self._response(ids)

    def locate(self, content: Content) -> ScoredIds:
        """Read as `read` does, and say where each token stands."""
        return without_errors(self._locate_many([content]))[0]

    def _locate_many(self, contents: Iterable[Content]) -> list[ScoredIds | DgmarkError]:
        """What `locate` finds of several; in the place of one that cannot be read, its error."""
        located = each(self._located, contents)
        if self.surprisal_model is None:
            return each(lambda pair: pair[1], located)
        return together(lambda some: together_or_each(self._with_surprisal, some), located)

    def _located(self, content: Any) -> tuple[Any, ScoredIds]:
        ids, offsets = self.encode(content)
        scored = self.scored(ids)
        return content, replace(scored, offsets=offsets[scored.positions])

    def _with_surprisal(self, located: Sequence[tuple[Any, ScoredIds]]) -> list[ScoredIds]:
        texts = [
            (well_formed(content), tokens.offsets)
            if isinstance(content, str)
            else text_of_ids(self.tokenizer, tokens.ids.tolist())
            for content, tokens in located
        ]
        surprisals = self._surprisals([text for text, _ in texts], [offsets for _, offsets in texts])
        pairs = zip(located, surprisals, strict=True)
        return [replace(tokens, surprisal=surprisal) for (_, tokens), surprisal in pairs]

    def _surprisals(self, texts: list[str], offsets: list[Offsets]) -> list[Surprisal]:
        """How surprised the model is by the tokens of texts, by their characters; a ModelFault if it does not say."""
        model = self.surprisal_model
        assert model is not None
        new = [text for text in dict.fromkeys(texts) if text not in self._read]
        read = model.surprisals(new) if new else []
        if len(read) != len(new):
            raise ModelFault(f"{model.name} gave surprisals of {len(read)} texts, not of {len(new)}")
        read = [checked_surprisal(text, given, model.name) for text, given in zip(new, read, strict=True)]
        # the spans of a text, and its tokens for display, are asked for after its verdict
        kept = {text: self._read[text] for text in texts if text in self._read} | dict(zip(new, read, strict=True))
        self._read = dict(list(kept.items())[-_TEXTS_KEPT:])
        return [
            Surprisal(nats_of_tokens(own, *kept[text]), model.name, model.fingerprint)
            for text, own in zip(texts, offsets, strict=True)
        ]

    def encode(self, content: Content) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, "n 2"]]:
        """All tokens with their offsets, including the tokens that are not scored."""
        if isinstance(content, str):
            encoding = self.tokenizer.encode_with_offsets(content)
            return np.array(encoding.ids, dtype=np.int64), np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        ids = self._response(content)
        return ids, np.arange(len(ids))[:, None] + np.arange(2)

    def scored(self, ids: Int[np.ndarray, " n"]) -> ScoredIds:
        """Those of all tokens that are scored."""
        positions = self._is_scored[ids].nonzero()[0]
        return ScoredIds(ids[positions], positions)

    def _response(self, ids: Int[np.ndarray, " n"]) -> Int[np.ndarray, " cut"]:
        """The ids up to the first end token, checked."""
        check_ids(ids, self._key.spec.table_size)
        ends = self._is_end[ids].nonzero()[0]
        return ids[: ends[0]] if len(ends) else ids

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


def _inside(scored: ScoredIds, only: Ranges, length: int) -> ScoredIds:
    """The tokens that lie inside one of the ranges of a text or a response of this length."""
    starts, ends = scored.offsets.T
    inside = np.zeros(len(scored.ids), dtype=bool)
    for start, end in checked_ranges(only):
        if not 0 <= start < end <= length:
            raise SettingsError(
                f"range {start}:{end} is not START:END with 0 <= START < END <= {length}, the length of what is scored"
            )
        inside |= (starts >= start) & (ends <= end)
    surprisal = scored.surprisal and replace(scored.surprisal, nats=scored.surprisal.nats[inside])
    return ScoredIds(scored.ids[inside], scored.positions[inside], surprisal)


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
        (unicodedata.category(sign)[0] in "LMN" or sign in "'’_") and unicodedata.east_asian_width(sign) not in "WF"
        for sign in text[place - 1 : place + 1]
    )


def checked_ranges(only: Ranges) -> list[tuple[int, int]]:
    """The ranges, once checked to be pairs of whole numbers; anything else is a SettingsError."""
    ranges = []
    for pair in several(only, "ranges"):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise SettingsError(f"a range is a pair (start, end), not {shown(pair)}: give a list of such pairs")
        ranges.append((whole("a range's start", pair[0]), whole("a range's end", pair[1])))
    return ranges
