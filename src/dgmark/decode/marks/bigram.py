"""The decode side of rule "bigram": which pairs a candidate would complete with the committed tokens beside it.

The loop and the engine adapters use the same code. Knows no model.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Int8, Shaped
from torch import Tensor
from torch.nn.functional import pad

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.keyed_side import KeyedSide
from dgmark.decode.marks.pair_signs import pair_signs, pair_signs_on
from dgmark.decode.marks.rules import UNUSED_WITHOUT_ORDER, Places, Window
from dgmark.errors import SettingsError
from dgmark.models.host import waits
from dgmark.watermark.bigram import BigramSpec, pair_key, pair_words
from dgmark.watermark.hashes import Words
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import class_table

# the number of a canvas takes the bits above the two ids of a pair
_PAIR_BITS = 48


class _Bits(NamedTuple):
    """The bits with neighbours, nearest first and left before right: with distances 1 and 2, those at -1 1 -2 2.

    Attributes:
        columns: the column of each neighbour, counted from the leftmost: 1 3 0 4.
        of_neighbour: the factor of each neighbour in the word of its pair: 1 if it is the left one.
        of_token: that of a token at the place.
        nearer: whether each other neighbour is nearer on the same side: for the one at 2, that at 1.
    """

    columns: Int[Tensor, " bits"]
    of_neighbour: Int[Tensor, " bits"]
    of_token: Int[Tensor, " bits"]
    nearer: Bool[Tensor, "bits others"]

    @classmethod
    def of(cls, nearest: int, farthest: int, device: torch.device) -> "_Bits":
        """The bits of a key with these distances."""
        distances = torch.arange(max(nearest, 1), farthest + 1, device=device)
        columns = farthest + torch.stack([-distances, distances], 1).view(-1)
        right = columns > farthest
        as_right = pair_words(torch.zeros_like(columns), torch.ones_like(columns))
        nearer = (right[:, None] == right).tril(-1)
        return cls(columns, torch.where(right, as_right, 1), torch.where(right, 1, as_right), nearer)


@dataclass(frozen=True, kw_only=True, eq=False)
class BigramSide(KeyedSide):
    """The hash keys of the rows of a batch, or of the slots of a store, on the device.

    Attributes:
        first: first half of each row's hash key.
        second: its second half.
        number: the number of each row's sub-key; 0 without sub-keys, -1 in a row without a mark.
        nearest: the smallest distance of a pair; all rows share the distances.
        farthest: the largest.
        classes: the class of each id under keys of words, and -1 in the end; None for keys of exact tokens.
        word_classes: the hash of the classes.
        fixed_shapes: whether shapes depend on shapes alone on the CPU too, as they do on a device, where nothing waits
            and a step can be captured in a CUDA graph; else only those pairs are hashed that exist.
    """

    unused = UNUSED_WITHOUT_ORDER
    first: Int[Tensor, " batch"]
    second: Int[Tensor, " batch"]
    number: Int[Tensor, " batch"]
    nearest: int
    farthest: int
    classes: Int[Tensor, " ids"] | None = None
    word_classes: str | None = None
    fixed_shapes: bool = False

    _bits: _Bits = field(init=False)

    def __post_init__(self) -> None:
        """Make what no captured step may make."""
        object.__setattr__(self, "_bits", _Bits.of(self.nearest, self.farthest, self.number.device))
        if self.number.is_cuda:
            pair_signs_on(self.number.device)

    @classmethod
    def kind(cls, key: WatermarkKey) -> tuple[int, int, str | None]:
        """The distances of pairs, and the hash of the classes of words."""
        spec = spec_as(BigramSpec, key)
        return spec.nearest, spec.farthest, spec.word_classes

    @classmethod
    def empty(
        cls, key: WatermarkKey, slots: int, device: torch.device | str, *, fixed_shapes: bool = False
    ) -> "BigramSide":
        """A side with this many rows without a mark; see `KeyedSide.empty`."""
        nearest, farthest, word_classes = cls.kind(key)
        first, second, number = (torch.full((slots,), value, device=device) for value in (0, 0, -1))
        table = class_table(key.spec)
        return cls(
            first=first,
            second=second,
            number=number,
            nearest=nearest,
            farthest=farthest,
            # -1, which is not an id, picks the last one
            classes=None if table is None else torch.tensor([*table.tolist(), -1], device=device),
            word_classes=word_classes,
            fixed_shapes=fixed_shapes,
        )

    def check_compatible(self, key: WatermarkKey) -> None:
        """Refuse a key that has sub-keys and is not one of them, or other distances or classes than the side."""
        nearest, farthest, word_classes = self.kind(key)
        if (nearest, farthest) != (self.nearest, self.farthest):
            raise SettingsError(
                f"key {key.fingerprint} has pairs at distances {nearest} to {farthest}, and these "
                f"rows at {self.nearest} to {self.farthest}: they mark no batch together"
            )
        if word_classes != self.word_classes:
            raise SettingsError(
                f"key {key.fingerprint} has pairs of {'exact tokens' if word_classes is None else 'words'}, and these "
                "rows have others: they mark no batch together"
            )
        if key.num_subkeys > 1:
            raise SettingsError(
                f"key {key.fingerprint} has {key.spec.subkeys} sub-keys, each with pairs of its own: take one with "
                "key.subkey(number)"
            )

    def put(self, slot: int, key: WatermarkKey) -> None:
        """Give a row a key."""
        self.first[slot], self.second[slot] = pair_key(key)
        self.number[slot] = key.number or 0

    @classmethod
    def check_config(cls, config: DecodeConfig) -> None:
        """Refuse settings under which draws are plain, and those of an order by matches."""
        if not (cls.alpha(config) or config.bias):
            # the message begins "temperature 0 draws nothing" or "alpha 0 makes draws plain"
            field, problem = ("temperature", "0 draws nothing") if config.greedy else ("alpha", "0 makes draws plain")
            raise SettingsError(
                f"{problem}, so rule bigram leaves no mark: give a bias, a higher {field}, or a key of rule position, "
                "which marks by the order alone",
                field=field,
            )
        super().check_config(config)

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have a mark; row -1 has none."""
        return torch.minimum(rows, self.number[rows]) >= 0

    @classmethod
    def alpha(cls, config: DecodeConfig) -> float:
        """1 by default; 0 at temperature 0, where nothing is drawn."""
        if config.greedy:
            return 0.0
        return 1.0 if config.alpha is None else config.alpha

    def reach(self) -> int:
        """The largest distance of a pair."""
        return self.farthest

    def reached(self, places: Places) -> Bool[Tensor, " places"]:
        """The places that have a committed token at one of the distances; at distance 0, all of rows with a mark."""
        if not self.nearest:
            return self.marked(places.rows)
        hidden = pad(self._hidden(places.window), (self.farthest, self.farthest), value=True)
        return ~self._beside(hidden, places).all(-1)

    def signs(self, tokens: Int[Tensor, "places candidates"], places: Places) -> Int8[Tensor, "places candidates bits"]:
        """The bits of the new pairs of each candidate: those with the nearest tokens first, left before right.

        At distance 0 the pair of a candidate with itself comes after all of them.

        A test counts each pair of a text once, so a pair that the text already has is none, nor is one that the
        candidate completes for a second time. A draw is unbiased only if each bit of the key comes once: a pair that
        two candidates complete, one with a token on its left and one with a token on its right, is a bit of the first.

        An example, at distances 1 and 2, with a dot for what is masked. The place is the third of the text 5 7 . 8 . :

            neighbours, nearest first     7         8         5         .
            candidate 9                   (7, 9)    (9, 8)    (5, 9)    none
            candidate 8                   in text   (8, 8)    (5, 8)    none
            candidate 7                   (7, 7)    in text   in text   none

        The text has (7, 8) and (5, 7) already, so that candidate 8 has no bit with the 7 on its left.
        """
        # 1. The committed tokens beside each place, (places, bits), each class once on each side; -1 for none.
        text, tokens = self._committed(places.window), self._class_ids(tokens)
        neighbours = self._beside(text, places)
        equal = neighbours[:, :, None] == neighbours[:, None]
        neighbours = neighbours.masked_fill((equal & self._bits.nearer).any(-1), -1)
        # 2. The pairs that are asked for, (places, candidates, bits): each of them is asked of one candidate. With a -1
        # the word of a pair is negative.
        words = (neighbours * self._bits.of_neighbour)[:, None] | tokens[:, :, None] * self._bits.of_token
        asked = words >= 0
        # In 5 . 8 candidate 5 completes (5, 8) with the 8 on its right, and candidate 8 with the 5 on its left: the bit
        # is asked of candidate 8. The other is one on the right of a candidate that is also on the left, with a
        # neighbour that is also a candidate.
        differ = tokens[:, :, None] != neighbours[:, None]
        left, right = differ[..., ::2], differ[..., 1::2]
        asked_right = asked[..., 1::2]
        asked_right &= left.all(-1, keepdim=True) | right.all(1, keepdim=True)
        if not self.nearest:
            own = (tokens >= 0) & self.marked(places.rows)[:, None]
            asked = torch.cat([asked, own[..., None]], -1)
            words = torch.cat([words, pair_words(tokens, tokens)[..., None]], -1)
        # 3. Their bits: of all pairs where shapes are fixed or the host would wait, else of those asked for.
        canvas, rows, held = places.canvas, places.window.rows, self._pairs_in_text(text)
        if self.fixed_shapes or waits(asked):
            rows, canvas = places.rows[:, None, None], canvas[:, None, None]
            return self.signs_of_pairs(words, rows) * (asked & ~_among(words | canvas << _PAIR_BITS, held))
        mask, signs = asked.numpy(), np.zeros(asked.shape, np.int8)
        pairs, which = words.numpy()[mask], canvas.numpy().repeat(np.count_nonzero(mask, (1, 2)))
        found = self.signs_of_pairs(torch.from_numpy(pairs), torch.from_numpy(rows.numpy()[which]))
        signs[mask] = found.numpy() * ~_among(pairs | which << _PAIR_BITS, held.numpy())
        return torch.from_numpy(signs)

    def net(self, window: Window) -> Int[Tensor, " canvases"]:
        """How many of the different pairs of each text match, less the others."""
        known = self._pairs_in_text(self._committed(window))
        pairs = known[(known >= 0) & (known.diff(prepend=known.new_full((1,), -1)) > 0)]
        canvas = pairs >> _PAIR_BITS
        signs = self.signs_of_pairs(pairs & (1 << _PAIR_BITS) - 1, window.rows[canvas])
        return torch.zeros_like(window.rows).index_add(0, canvas, signs.long())

    def _class_ids(self, ids: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The classes of ids under the keys; -1 stays -1."""
        return ids if self.classes is None else self.classes[ids]

    def _hidden(self, window: Window) -> Bool[Tensor, "canvases columns"]:
        """Where no token of a text is committed, or none counts: all of a row without a mark."""
        ids = window.ids[:, window.text[0] : window.text[1]]
        marked = self.marked(window.rows) if window.marked is None else window.marked
        return (ids == window.mask_id) >= marked[:, None]

    def _committed(self, window: Window) -> Int[Tensor, "canvases columns"]:
        """The classes of the tokens of each text, with as many more columns on either side as a pair reaches."""
        # -1 where there is no token: the text 5 7 . 8 . at distances 1 and 2: -1 -1 5 7 -1 8 -1 -1 -1
        ids = self._class_ids(window.ids[:, window.text[0] : window.text[1]])
        return pad(ids.masked_fill(self._hidden(window), -1), (self.farthest, self.farthest), value=-1)

    def _beside(self, text: Shaped[Tensor, "canvases columns"], places: Places) -> Shaped[Tensor, "places bits"]:
        """What a text, with as many more columns on either side as a pair reaches, has beside each place."""
        # the third place of 5 7 . 8 . at distances 1 and 2 has columns 2 to 6 of the text, of which 3 5 2 6: 7 8 5 -1
        from_window = text[:, places.window.start - places.window.text[0] :]
        return from_window[places.canvas[:, None], places.column[:, None] + self._bits.columns]

    def signs_of_pairs(self, words: Int[Tensor, "..."], rows: Int[Tensor, "..."]) -> Int8[Tensor, "..."]:
        """1 or -1 for the bit of each pair, 1 or 0, under the key of its row."""
        signs: Tensor = pair_signs(words, rows, self.first, self.second, self.number)
        return signs

    def _pairs_in_text(self, text: Int[Tensor, "canvases columns"]) -> Int[Tensor, " known"]:
        """The pairs of committed tokens of each canvas, ascending; negative where there is none."""
        # 5 7 . 8 . at distances 1 and 2 has (5, 7) and (7, 8); its other eight places of pairs are negative
        beside = text[:, self.farthest :].unfold(1, self.farthest + 1, 1)
        canvas = torch.arange(0, len(text) << _PAIR_BITS, 1 << _PAIR_BITS, device=text.device)
        pairs = pair_words(beside[..., :1], beside[..., self.nearest :]) | canvas[:, None, None]
        return pairs.flatten().sort().values


def _among(words: Words, known: Words) -> Words:
    """Whether each word is among those known, which are ascending; arrays or tensors."""
    search = known.searchsorted if isinstance(known, np.ndarray) else partial(torch.searchsorted, known)
    among: Words = known[search(words).clip(max=len(known) - 1)] == words
    return among
