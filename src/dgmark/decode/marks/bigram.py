"""The decode side of rule "bigram": which pairs a candidate would complete with the committed tokens beside it.

The loop and the engine adapters use the same code. Knows no model.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.keyed_side import KeyedSide
from dgmark.decode.marks.rules import UNUSED_WITHOUT_ORDER, Places, Window
from dgmark.errors import SettingsError
from dgmark.models.host import waits
from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key, pair_words
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import class_table

# the number of a canvas takes the bits above the two ids of a pair
_PAIR_BITS = 48


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
        return (rows >= 0) & (self.number[rows.clamp(min=0)] >= 0)

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
        """The places that have a committed token at one of the distances."""
        return self._neighbours(places)[1].any(-1)

    def signs(self, tokens: Int[Tensor, "places candidates"], places: Places) -> Int8[Tensor, "places candidates bits"]:
        """The bits of the new pairs of each candidate: those with the nearest tokens first, left before right.

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
        # 1. The committed tokens beside each place, (places, bits), each class of tokens once on each side.
        neighbours, exists = self._neighbours(places)
        tokens, neighbours = self._class_ids(tokens), self._class_ids(neighbours)
        is_new = exists & ~self._repeated(neighbours, exists)
        # 2. The pairs that are asked for, (places, candidates, bits): each of them is asked of one candidate.
        asked = is_new[:, None] & (tokens >= 0)[:, :, None]
        # In 5 . 8 candidate 5 completes (5, 8) with the 8 on its right, and candidate 8 with the 5 on its left: the bit
        # is asked of candidate 8. The other is one on the right of a candidate that is also on the left, with a
        # neighbour that is also a candidate.
        is_neighbour = (tokens[:, :, None] == neighbours[:, None]) & exists[:, None]
        is_left = (is_neighbour & ~self._right).any(-1, keepdim=True)
        is_candidate = is_neighbour.any(1, keepdim=True)
        asked &= ~(self._right & is_left & is_candidate)
        # 3. Their bits: of all pairs where shapes are fixed or the host would wait, else of those asked for.
        if self.fixed_shapes or waits(asked):
            return (
                self._values(
                    tokens[:, :, None], neighbours[:, None], self._right, places.canvas[:, None, None], places.window
                )
                * asked
            )
        at = place, candidate, bit = asked.nonzero(as_tuple=True)
        signs = torch.zeros_like(asked, dtype=torch.int8)
        signs[at] = self._values(
            tokens[place, candidate], neighbours[place, bit], self._right[bit], places.canvas[place], places.window
        )
        return signs

    def closing_bits(self, before: Window, after: Window, places: Places) -> Int[Tensor, " places"]:
        """Count the different pairs across each gap that the text did not have: those that match less the others.

        At distances 1 and 2, where the 7 of 5 6 7 8 9 was deleted, the pairs across the gap are (6, 8), (6, 9) and
        (5, 8); the text had (6, 8) before.
        """
        # 1. The two columns of each pair (places, pairs): the left one at 1 to d places before the gap, the right one
        # at its distance d.
        distances = torch.arange(self.nearest, self.farthest + 1, device=self.number.device)
        left = -torch.cat([torch.arange(1, distance + 1, device=distances.device) for distance in distances.tolist()])
        right = left + distances.repeat_interleave(distances)
        columns, canvas = after.start + places.column[:, None], places.canvas[:, None]
        first, last = columns + left, columns + right
        inside = (first >= after.text[0]) & (last < after.text[1])
        # 2. Their words, of which each counts once.
        width = after.ids.shape[1] - 1
        tokens, others = after.ids[canvas, first.clamp(0, width)], after.ids[canvas, last.clamp(0, width)]
        exists = inside & (tokens != after.mask_id) & (others != after.mask_id) & self.marked(places.rows)[:, None]
        words = pair_words(self._class_ids(tokens), self._class_ids(others))
        is_new = exists & ~torch.isin(words | canvas << _PAIR_BITS, self._pairs_in_text(before))
        equal = (words[:, :, None] == words[:, None]) & is_new[:, None]
        earlier = torch.ones_like(left, dtype=torch.bool).expand(len(left), -1).tril(-1)
        counted = is_new & ~(equal & earlier).any(-1)
        return (self.signs_of_pairs(words, places.rows[:, None].expand_as(words)) * counted).sum(1)

    def _class_ids(self, ids: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The classes of ids under the keys; -1 stays -1."""
        return ids if self.classes is None else self.classes[ids]

    @property
    def _offsets(self) -> Int[Tensor, " bits"]:
        """How many columns each neighbour is to the right of a place."""
        distances = torch.arange(self.nearest, self.farthest + 1, device=self.number.device)
        return torch.stack([-distances, distances], 1).view(-1)

    @property
    def _right(self) -> Bool[Tensor, " bits"]:
        return self._offsets > 0

    def _neighbours(self, places: Places) -> tuple[Int[Tensor, "places bits"], Bool[Tensor, "places bits"]]:
        """The tokens beside each place, and which of them are committed and of its text."""
        # the third place of 5 7 . 8 . at distances 1 and 2: offsets -1 1 -2 2, tokens 7 8 5 ., known 1 1 1 0
        window = places.window
        columns = window.start + places.column[:, None] + self._offsets
        inside = (columns >= window.text[0]) & (columns < window.text[1])
        tokens = window.ids[places.canvas[:, None], columns.clamp(0, window.ids.shape[1] - 1)]
        return tokens, inside & (tokens != window.mask_id) & self.marked(places.rows)[:, None]

    def _repeated(self, neighbours: Tensor, exists: Tensor) -> Bool[Tensor, "places bits"]:
        """Which neighbours are a second time on their side, nearer to the place."""
        # in 7 7 . 8 the neighbours are 7 8 7, and the last is the first again: 0 0 1
        right = self._right
        equal = (neighbours[:, :, None] == neighbours[:, None, :]) & exists[:, None, :]
        nearer = torch.ones_like(equal[0]).tril(-1)  # column before row
        same_side = right[:, None] == right
        return (equal & nearer & same_side).any(-1)

    def _values(
        self, tokens: Tensor, neighbours: Tensor, right: Tensor, canvas: Tensor, window: Window
    ) -> Int8[Tensor, "..."]:
        """1 or -1 for the bit of each pair; 0 if the canvas has it already."""
        # token 9 beside a 7 is the pair (7, 9) with the 7 on its left, and (9, 7) with the 7 on its right
        words = torch.where(right, pair_words(tokens, neighbours), pair_words(neighbours, tokens))
        rows = window.rows[canvas]
        known, asked = self._pairs_in_text(window), words | canvas << _PAIR_BITS
        index = torch.searchsorted(known, asked).clamp(max=len(known) - 1)  # of the pair, if it is known
        return self.signs_of_pairs(words, rows) * (known[index] != asked)

    def signs_of_pairs(self, words: Int[Tensor, "..."], rows: Int[Tensor, "..."]) -> Int8[Tensor, "..."]:
        """1 or -1 for the bit of each pair, 1 or 0, under the key of its row."""
        rows = rows.clamp(min=0)
        first, second, number = self.first[rows], self.second[rows], self.number[rows].clamp(min=0)
        if self.fixed_shapes or waits(words):
            bits = matching_pairs(words, (first, second), number)
        else:  # numpy has less to do for each operation
            bits = torch.from_numpy(matching_pairs(words.numpy(), (first.numpy(), second.numpy()), number.numpy()))
        return torch.where(bits, 1, -1).to(torch.int8)

    def _pairs_in_text(self, window: Window) -> Int[Tensor, " known"]:
        """The pairs of committed tokens of each canvas, ascending; -1 where there is none."""
        # 5 7 . 8 . at distances 1 and 2 has (5, 7) and (7, 8); its other five places of pairs are -1
        ids = window.ids[:, window.text[0] : window.text[1]]
        canvas = torch.arange(len(ids), device=ids.device)[:, None] << _PAIR_BITS
        known, words = ids != window.mask_id, [ids.new_full((len(ids), 1), -1)]
        ids = self._class_ids(ids)
        for distance in range(self.nearest, self.farthest + 1):
            pairs = pair_words(ids[:, :-distance], ids[:, distance:]) | canvas
            words.append(torch.where(known[:, :-distance] & known[:, distance:], pairs, -1))
        return torch.cat(words, 1).view(-1).sort().values
