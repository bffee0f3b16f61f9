"""The round-trip check: which candidates keep the text one that encodes to its own tokens again.

A detector tokenizes the text again. Tokens beside each other that the tokenizer would have merged, or cut elsewhere, do
not survive this re-tokenization, and every position after them shifts. The paper has no such check. This module knows
no key and no logits.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.checkpoint.byte_bpe import BYTE_OF_LETTER
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.host import on_host

# Tokens on either side that a check reads. What byte-pair merges make of a text depends on neighbours only; the rest
# is for the splitting into words, and for characters of up to four tokens.
_REACH = 4
# Columns on either side of the block that checks may read: a character is read from its beginning.
_MARGIN = 16
_MAX_REMEMBERED = 2**16
# a character for private use: no vocabulary has it in a longer token
_NEVER_MERGED = "\ue000"


@dataclass(frozen=True)
class Surroundings:
    """The part of a canvas that checks of a block read.

    Attributes:
        ids: token ids, with the mask where nothing is committed.
        at: where the block begins in `ids`.
        cut_before: whether the text goes on before it.
        cut_after: whether the text goes on after it.
    """

    ids: list[int]
    at: int
    cut_before: bool
    cut_after: bool


class RoundTrip:
    """Tells which candidates survive re-tokenization: whether the tokenizer gives them, and the committed tokens around
    them, again.

    A check decodes the candidate with the few committed tokens beside it, and encodes that text. What stands beyond a
    mask is unknown: a character of several tokens that begins or ends there is judged once it is complete, and white
    space before it may be followed by more, or by a letter.

    Args:
        tokenizer: the model's tokenizer.
        mask_id: the id of a position that is not committed.
        end_ids: ids that end the text; () if none does.
    """

    def __init__(self, tokenizer: Tokenizer, mask_id: int, end_ids: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._mask = mask_id
        self._ends = frozenset(end_ids)
        self._boundaries = self._ends | tokenizer.special_ids | {mask_id}
        self._remembered = lru_cache(_MAX_REMEMBERED)(self._window_survives)
        self._spelled = cache(self._bytes_of)

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, tokenizer: Tokenizer, mask_id: int, end_ids: tuple[int, ...] = ()) -> "RoundTrip | None":
        """The check for a byte-level tokenizer; None for others, whose tokens it cannot judge by parts.

        The check of a tokenizer is made once, so that it remembers its answers from batch to batch.
        """
        decoder = tokenizer.backend.decoder
        byte_level = decoder is not None and decoder.decode(["Ġ"]) == " "
        return cls(tokenizer, mask_id, end_ids) if byte_level else None

    def unreadable(
        self,
        tokens: Int[Tensor, "batch block"],
        canvas: Int[Tensor, "batch length"],
        text: tuple[int, int],
        start: int,
        order: Int[Tensor, "batch block"],
        members: Int[Tensor, " batch"],
        quota: Int[Tensor, " batch"],
        width: Int[Tensor, " batch"] | None = None,
    ) -> tuple[Bool[Tensor, "batch block"], Bool[Tensor, " batch"]]:
        """Find the candidates that do not survive re-tokenization, among those that a step may commit.

        Candidates are looked at in their order until enough survive, so most are never looked at. Those of one step
        are judged together.

        Args:
            tokens: candidates v_j.
            canvas: prompt and response, with masks where nothing is committed.
            text: the columns [first, stop) of the canvas that are read as one text.
            start: the block's first column in the canvas.
            order: the places of the block in the order in which they are preferred (`order_of`).
            members: how many of them are masked; these come first.
            quota: how many candidates a step commits in each row.
            width: how many the last one is chosen among; None for 1.

        Returns:
            The candidates that were looked at and do not survive; and the rows in which fewer than the quota do
            (or fewer than all, if fewer are masked). Both are on the CPU, which the text is read on.
        """
        short = []
        first, stop = max(text[0], start - _MARGIN), min(text[1], start + tokens.shape[1] + _MARGIN)
        given = on_host(canvas[:, first:stop], tokens, order, members, quota, *(() if width is None else (width,)))
        found = np.zeros(tokens.shape, np.bool_)
        rows = zip(*(values.tolist() for values in given), strict=True)
        for row, (ids, drawn, places, count, wanted, *among) in enumerate(rows):
            around = Surroundings(ids, start - first, first > text[0], stop < text[1])
            enough = wanted - 1 + among[0] if among else wanted
            failed, good = self._row(around, drawn, places[:count], wanted, enough)
            found[row, failed] = True
            short.append(good < min(wanted, count))
        return torch.from_numpy(found), torch.from_numpy(np.array(short, np.bool_))

    def _row(
        self, around: Surroundings, drawn: list[int], places: list[int], wanted: int, enough: int
    ) -> tuple[list[int], int]:
        """The places whose candidates do not survive, and how many do; `around.ids` takes up those to be committed."""
        failed, good = [], 0
        for place in places:
            if good == enough:
                break
            if self.survives(around, place, drawn[place]):
                good += 1
                if good < wanted:
                    around.ids[around.at + place] = drawn[place]
            else:
                failed.append(place)
        return failed, good

    def survives(self, around: Surroundings, place: int, token: int) -> bool:
        """Whether this token at this place of the block survives with the committed tokens beside it."""
        ids, at = around.ids, around.at + place
        low, high, last = at, at + 1, len(ids)
        while low and ids[low - 1] not in self._boundaries and (at - low < _REACH or self._continues(ids[low])):
            low -= 1
        while high < last and high - at <= _REACH and ids[high] not in self._boundaries:
            high += 1
        open_before = ids[low - 1] not in self._boundaries or ids[low - 1] == self._mask if low else around.cut_before
        open_after = ids[high] not in self._boundaries or ids[high] == self._mask if high < last else around.cut_after
        if token in self._ends:  # the text stops before it
            return low == at or self._remembered((*ids[low:at],), at - low - 1, open_before, False)
        if token in self._boundaries:
            return False
        return self._remembered((*ids[low:at], token, *ids[at + 1 : high]), at - low, open_before, open_after)

    def _window_survives(self, window: tuple[int, ...], place: int, open_before: bool, open_after: bool) -> bool:
        """Whether a window survives; before or after an open edge other tokens may follow."""
        return self._reads_back(window) or (
            (open_before or open_after) and self._inner_part_survives(window, place, open_before, open_after)
        )

    def _inner_part_survives(self, window: tuple[int, ...], place: int, open_before: bool, open_after: bool) -> bool:
        """The same without parts of characters at open edges; True if the candidate is among these."""
        low, high = 0, len(window)
        while open_before and low < high and self._continues(window[low]):
            low += 1
        while open_after and low < high and self._incomplete(window[low:high]):
            high -= 1
        if not low <= place < high:
            return True
        inner = window[low:high]
        return (len(inner) < len(window) and self._reads_back(inner)) or (
            open_after and self._reads_back_before_more(inner)
        )

    def _reads_back(self, window: Sequence[int]) -> bool:
        ids = list(window)
        return self._tokenizer.encode(self._tokenizer.decode(ids)) == ids

    def _reads_back_before_more(self, window: Sequence[int]) -> bool:
        """Whether a window survives if a character follows: tokenizers cut white space by what comes after it."""
        ids = list(window)
        return self._tokenizer.encode(self._tokenizer.decode(ids) + _NEVER_MERGED)[: len(ids)] == ids

    def _continues(self, token: int) -> bool:
        """Whether the token begins inside a character."""
        return 0x80 <= (self._spelled(token) or b"\0")[0] < 0xC0

    def _incomplete(self, tokens: Iterable[int]) -> bool:
        """Whether these tokens end inside a character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(b"".join(map(self._spelled, tokens)))
        return bool(decoder.getstate()[0])

    def _bytes_of(self, token: int) -> bytes:
        spelling = str(self._tokenizer.backend.id_to_token(token))
        if all(letter in BYTE_OF_LETTER for letter in spelling):
            return bytes(BYTE_OF_LETTER[letter] for letter in spelling)
        return spelling.encode()
