"""The level of each candidate under the bigram rule: the pairs it completes that match, less those that do not; and
which edits of committed tokens take no level from the text.

The loop and the engine adapters use the same function. Knows no text and no model.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeGuard

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.steering import Levels, Window
from dgmark.errors import SettingsError
from dgmark.watermark.bigrams import matching_pairs, pair_words
from dgmark.watermark.key import WatermarkKey


class PairKeys(NamedTuple):
    """The hash keys of the rows of a batch, or of the slots of a store, on the device.

    Attributes:
        first: first half of each row's hash key.
        second: its second half.
        number: the number of each row's sub-key; 0 without sub-keys, -1 in a row that is not of rule "bigram".
        nearest: the smallest distance of a pair; all rows share the distances.
        farthest: the largest.
    """

    first: Int[Tensor, " batch"]
    second: Int[Tensor, " batch"]
    number: Int[Tensor, " batch"]
    nearest: int
    farthest: int

    @classmethod
    def of(
        cls, keys: Sequence[WatermarkKey | None], device: torch.device, distances: tuple[int, int] | None = None
    ) -> "PairKeys":
        """The keys of a batch; without distances, those of its keys, of which at least one is of rule "bigram".

        Raises:
            SettingsError: the keys have different distances, or one has sub-keys and is not one of them.
        """
        columns = zip(*map(hash_parts, keys), strict=True)
        first, second, number = (torch.tensor(column, dtype=torch.long).to(device) for column in columns)
        distances = distances or distances_of(keys)
        assert distances is not None
        return cls(first, second, number, *distances)

    def of_rows(self, rows: Int[Tensor, " n"]) -> "PairKeys":
        """The keys of these rows, in this order; -1 stands for a row without a mark."""
        at = rows.clamp(min=0)
        number = self.number[at].masked_fill(rows < 0, -1)
        return self._replace(first=self.first[at], second=self.second[at], number=number)

    @property
    def steers(self) -> Bool[Tensor, " batch"]:
        """Which rows are of rule "bigram"."""
        return self.number >= 0


def is_bigram(key: WatermarkKey | None) -> TypeGuard[WatermarkKey]:
    """Whether a key is of rule "bigram"."""
    return key is not None and key.spec.rule == "bigram"


def distances_of(keys: Iterable[WatermarkKey | None]) -> tuple[int, int] | None:
    """The smallest and the largest distance of a pair, which all keys of rule "bigram" share; None without such a key.

    Raises:
        SettingsError: the keys have different distances.
    """
    ranges = {(key.spec.nearest, key.spec.farthest) for key in keys if is_bigram(key)}
    if len(ranges) > 1:
        raise SettingsError(f"keys with different distances of pairs, {sorted(ranges)}, mark no batch together")
    return ranges.pop() if ranges else None


def hash_parts(key: WatermarkKey | None) -> tuple[int, int, int]:
    """What `PairKeys` holds of a key.

    Raises:
        SettingsError: the key has sub-keys and is not one of them.
    """
    if not is_bigram(key):
        return 0, 0, -1
    if key.spec.subkeys > 1 and key.number is None:
        raise SettingsError(
            f"key {key.fingerprint} has {key.spec.subkeys} sub-keys, each with pairs of its own: take one with "
            "key.subkey(number)"
        )
    return *key.pair_key, key.number or 0


def keyed_signs(ends: tuple[Tensor, Tensor], keys: PairKeys) -> Int[Tensor, "batch pairs"]:
    """1 for each pair that matches under its row's key, -1 for any other."""
    first, second, number = (column[:, None] for column in keys[:3])
    return matching_pairs(pair_words(*ends), (first, second), number).to(torch.int32) * 2 - 1


def _signs_by_numpy(ends: tuple[Tensor, Tensor], keys: PairKeys) -> Int[Tensor, "batch pairs"]:
    """The same on a CPU, and not in a graph, by numpy, which has less to do for each operation."""
    first, second, number = (column[:, None].numpy() for column in keys[:3])
    matches = matching_pairs(pair_words(*ends).numpy(), (first, second), number)
    return torch.from_numpy(matches).to(torch.int32) * 2 - 1


Signs = Callable[[tuple[Tensor, Tensor], PairKeys], Tensor]


def pair_levels(
    tokens: Int[Tensor, "batch window"], window: Window, keys: PairKeys, signs_of: Signs = keyed_signs
) -> Levels:
    """The level of each candidate, and the links between the candidates; 0 in rows that are not of rule "bigram".

    Shapes depend on shapes alone, and nothing waits for the device, so this may stand in a CUDA graph.

    Args:
        tokens: the candidates; only those of masked places count.
        window: the canvases.
        keys: the keys of the rows.
        signs_of: what each pair counts: 1 if it is preferred, -1 if not.
    """
    places = _Places.of(window, keys)
    row = places.filled(window.masked, tokens)
    known_left, known_right = places.ends(places.known)
    signs = signs_of(places.ends(row), keys)
    return places.levels(signs * known_right, signs * known_left, signs * ~(known_left | known_right))


def lossless_edits(
    edits: Bool[Tensor, "batch window"],
    tokens: Int[Tensor, "batch window"],
    window: Window,
    keys: PairKeys,
    signs_of: Signs = keyed_signs,
) -> Bool[Tensor, "batch window"]:
    """Of these edits of committed tokens, from left to right, those that with the ones made before take no level.

    Args:
        edits: places whose committed token would be replaced.
        tokens: the tokens that would replace them; only those of committed places count.
        window: the canvases before the edits.
        keys: the keys of the rows.
        signs_of: what each pair counts: 1 if it is preferred, -1 if not.
    """
    places = _Places.of(window, keys)
    known_left, known_right = places.ends(places.known)
    both = known_left & known_right
    (left, right), (new_left, new_right) = (
        places.ends(row) for row in (places.row, places.filled(~window.masked, tokens))
    )
    pairs = (left, right), (new_left, right), (left, new_right), (new_left, new_right)
    now, by_left, by_right, by_both = (signs_of(ends, keys) * both for ends in pairs)
    # what each edit alone adds to the level of the text, and what it adds to the gain of another
    gains, links = places.levels(by_left - now, by_right - now, by_both - by_left - by_right + now)
    assert links is not None
    made = []
    for place in range(edits.shape[1]):
        made.append(edits[:, place] & (gains[:, place] >= 0))
        gains = gains + links[:, place] * made[-1][:, None]
    return torch.stack(made, 1)


class KeyPairs:
    """The levels under one key for each row.

    Args:
        keys: the key of each row; rows of other rules, or without a mark, get no levels. At least one is of rule
            "bigram", and all of those have the same distances.
        device: the device of candidates and canvases.
        signs_of: what each pair counts in place of its keyed sign.
    """

    def __init__(
        self, keys: Sequence[WatermarkKey | None], device: torch.device, signs_of: Signs | None = None
    ) -> None:
        self._keys = PairKeys.of(keys, device)
        self._signs_of = signs_of or (_signs_by_numpy if device.type == "cpu" else keyed_signs)

    def steers(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows are under the bigram rule."""
        return self._keys.steers[rows]

    def __call__(self, tokens: Int[Tensor, "n window"], window: Window, rows: Int[Tensor, " n"]) -> Levels:
        """The levels of candidates on canvases of these rows of the batch; 0 in rows of other rules."""
        return pair_levels(tokens, window, self._keys.of_rows(rows), self._signs_of)

    def edits(self, edits: Tensor, tokens: Tensor, window: Window, rows: Tensor) -> Bool[Tensor, "n window"]:
        """Of these edits on canvases of these rows of the batch, those that take no level from the text."""
        return lossless_edits(edits, tokens, window, self._keys.of_rows(rows), self._signs_of)


class _Places(NamedTuple):
    """A window with as many columns on either side as a pair reaches, and all pairs of near columns.

    Attributes:
        row: the ids of these columns.
        known: where a token is committed.
        left: the left column of each pair.
        right: its right column.
        middle: the columns of the window.
        steers: which rows are of rule "bigram".
    """

    row: Int[Tensor, "batch columns"]
    known: Bool[Tensor, "batch columns"]
    left: Int[Tensor, " pairs"]
    right: Int[Tensor, " pairs"]
    middle: slice
    steers: Bool[Tensor, " batch"]

    @classmethod
    def of(cls, window: Window, keys: PairKeys) -> "_Places":
        """The columns of a window and those that its pairs reach on both sides."""
        width, reach, device = window.masked.shape[1], keys.farthest, window.ids.device
        columns = torch.arange(window.start - reach, window.start + width + reach, device=device)
        inside = (columns >= window.text[0]) & (columns < window.text[1])
        row = window.ids[:, columns.clamp(0, window.ids.shape[1] - 1)]
        # pairs outside the window are counted where nobody looks: so these shapes need no list
        left = torch.arange(reach + width, device=device).repeat(reach - keys.nearest + 1, 1)
        right = left + torch.arange(keys.nearest, reach + 1, device=device)[:, None]
        known = inside & (row != window.mask_id)
        return cls(row, known, left.view(-1), right.view(-1), slice(reach, reach + width), keys.steers)

    def filled(self, places: Bool[Tensor, "batch window"], tokens: Tensor) -> Int[Tensor, "batch columns"]:
        """The ids with these tokens at some places of the window."""
        row = self.row.clone()
        row[:, self.middle] = torch.where(places, tokens, row[:, self.middle])
        return row

    def ends(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """What stands at the left and at the right column of each pair."""
        return row[:, self.left], row[:, self.right]

    def levels(self, of_left: Tensor, of_right: Tensor, of_both: Tensor) -> Levels:
        """The sums over the pairs of each place of the window, and what the pairs of two places add for both."""
        size = self.row.shape[1]
        sums = torch.zeros_like(self.row, dtype=torch.int32)
        sums.index_add_(1, self.left, of_left).index_add_(1, self.right, of_right)
        links = sums.new_zeros(len(sums), size * size)
        links[:, self.left * size + self.right] = of_both
        links = links.view(-1, size, size)[:, self.middle, self.middle]
        return Levels(sums[:, self.middle] * self.steers[:, None], (links + links.mT) * self.steers[:, None, None])
