"""The level of each candidate under the bigram rule: the pairs it completes that match, less those that do not.

The loop and the engine adapters use the same function. Knows no text and no model.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeGuard

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.steering import Levels, Window
from dgmark.errors import SettingsError
from dgmark.watermark.bigrams import matching_pairs, pair_words
from dgmark.watermark.key import WatermarkKey


class PairKeys(NamedTuple):
    """The hash keys of the rows of a batch on the device.

    Attributes:
        first: first half of each row's hash key.
        second: its second half.
        number: the number of each row's sub-key; 0 without sub-keys.
        nearest: the smallest distance of a pair; all rows share the distances.
        farthest: the largest.
    """

    first: Int[Tensor, " batch"]
    second: Int[Tensor, " batch"]
    number: Int[Tensor, " batch"]
    nearest: int
    farthest: int

    @classmethod
    def of(cls, keys: Sequence[WatermarkKey | None], device: torch.device) -> "PairKeys":
        """The keys of a batch, of which at least one is of rule "bigram"; other rows get a hash key of zeros.

        Raises:
            SettingsError: the keys have different distances.
        """
        ranges = {(key.spec.nearest, key.spec.farthest) for key in keys if is_bigram(key)}
        if len(ranges) > 1:
            raise SettingsError(f"keys with different distances of pairs, {sorted(ranges)}, mark no batch together")
        halves = [key.pair_key if is_bigram(key) else (0, 0) for key in keys]
        numbers = [(key and key.number) or 0 for key in keys]
        columns = [[half[0] for half in halves], [half[1] for half in halves], numbers]
        first, second, number = (torch.tensor(column, dtype=torch.long).to(device) for column in columns)
        return cls(first, second, number, *ranges.pop())

    def of_rows(self, rows: Int[Tensor, " n"]) -> "PairKeys":
        """The keys of these rows, in this order."""
        return self._replace(first=self.first[rows], second=self.second[rows], number=self.number[rows])


def is_bigram(key: WatermarkKey | None) -> TypeGuard[WatermarkKey]:
    """Whether a key is of rule "bigram"."""
    return key is not None and key.spec.rule == "bigram"


def pair_levels(tokens: Int[Tensor, "batch window"], window: Window, keys: PairKeys) -> Levels:
    """The level of each candidate, and the links between the candidates.

    Shapes depend on shapes alone, and nothing waits for the device, so this may stand in a CUDA graph.

    Args:
        tokens: the candidates; only those of masked places count.
        window: the canvases.
        keys: the keys of the rows.
    """
    width, reach = tokens.shape[1], keys.farthest
    # the window and `farthest` columns on either side, with the candidates in their places
    columns = torch.arange(window.start - reach, window.start + width + reach, device=tokens.device)
    inside = (columns >= window.text[0]) & (columns < window.text[1])
    row = window.ids[:, columns.clamp(0, window.ids.shape[1] - 1)]
    known = inside & (row != window.mask_id)
    middle = slice(reach, reach + width)
    row[:, middle] = torch.where(window.masked, tokens, row[:, middle])
    known[:, middle] = ~window.masked

    places = _places(width, keys.nearest, reach, tokens.device)
    words = pair_words(row[:, places.left], row[:, places.right])
    signs = _matches(words, keys).to(torch.int32) * 2 - 1
    levels = torch.zeros_like(row, dtype=torch.int32)
    levels.index_add_(1, places.left, signs * known[:, places.right])
    levels.index_add_(1, places.right, signs * known[:, places.left])

    inner = signs[:, places.inner] * ~(known[:, places.left[places.inner]] | known[:, places.right[places.inner]])
    links = torch.zeros(len(row), width * width, dtype=torch.int32, device=tokens.device)
    links[:, places.link] = inner
    links[:, places.link_back] = inner
    return Levels(levels[:, middle], links.view(-1, width, width))


class KeyPairs:
    """The levels under one key for each row.

    Args:
        keys: the key of each row; rows of other rules, or without a mark, get no levels. At least one is of rule
            "bigram", and all of those have the same distances.
        device: the device of candidates and canvases.
    """

    def __init__(self, keys: Sequence[WatermarkKey | None], device: torch.device) -> None:
        self._keys = PairKeys.of(keys, device)
        self._steered = torch.tensor([is_bigram(key) for key in keys], device=device)

    def steers(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows are under the bigram rule."""
        return self._steered[rows]

    def __call__(self, tokens: Int[Tensor, "n window"], window: Window, rows: Int[Tensor, " n"]) -> Levels:
        """The levels of candidates on canvases of these rows of the batch; 0 in rows of other rules."""
        levels, links = pair_levels(tokens, window, self._keys.of_rows(rows))
        steered = self._steered[rows]
        return Levels(levels * steered[:, None], None if links is None else links * steered[:, None, None])


class _Places(NamedTuple):
    """The pairs with at least one token in a window, as indices of the window and its surroundings.

    `inner` are the pairs with both tokens in the window; `link` and `link_back` their places in `Levels.links`.
    """

    left: Tensor
    right: Tensor
    inner: Tensor
    link: Tensor
    link_back: Tensor


@lru_cache(maxsize=64)
def _places(width: int, nearest: int, farthest: int, device: torch.device) -> _Places:
    window = range(farthest, farthest + width)
    pairs = [
        (left, left + distance)
        for distance in range(nearest, farthest + 1)
        for left in range(farthest - distance, farthest + width)
    ]
    inner = [number for number, (left, right) in enumerate(pairs) if left in window and right in window]
    link = [(pairs[number][0] - farthest) * width + pairs[number][1] - farthest for number in inner]
    back = [(pairs[number][1] - farthest) * width + pairs[number][0] - farthest for number in inner]
    left, right = zip(*pairs, strict=True)
    return _Places(*(torch.tensor(one, dtype=torch.long, device=device) for one in (left, right, inner, link, back)))


def _matches(words: Int[Tensor, "batch pairs"], keys: PairKeys) -> Bool[Tensor, "batch pairs"]:
    """Whether each pair matches under its row's key; on a CPU by numpy, which has less to do for each operation."""
    halves, number = (keys.first[:, None], keys.second[:, None]), keys.number[:, None]
    if words.device.type != "cpu":
        return matching_pairs(words, halves, number)
    first, second = (half.numpy() for half in halves)
    return torch.from_numpy(matching_pairs(words.numpy(), (first, second), number.numpy()))
