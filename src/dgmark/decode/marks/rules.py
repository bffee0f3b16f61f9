"""`DecodeSide`: what a watermark does to the steps of a decode; and what a step shows it.

A decode side says which keyed bits candidate tokens would complete, from which draws, order and edits follow. Marks
without bits change the logits (green lists) or bring the noise of the draw (Gumbel-max). This module knows no
watermark by name and no key.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Int8, Shaped
from torch import Tensor

from dgmark.arguments.checks import is_of
from dgmark.decode.config import DecodeConfig
from dgmark.errors import SettingsError
from dgmark.models.host import true_places


@dataclass(frozen=True)
class Window:
    """The part of several canvases that a step fills.

    Attributes:
        ids: whole canvases; places that are not committed hold the mask id.
        start: the canvas column of the window's first place.
        positions: the positions of its places as the mark counts them.
        text: the columns [first, stop) that are read as one text.
        mask_id: the id of a position that is not committed.
        rows: the row of the batch that each canvas comes from.
        marked: whether these rows have a mark, if it was asked for already.
    """

    ids: Int[Tensor, "canvases length"]
    start: int
    positions: Int[Tensor, "canvases window"]
    text: tuple[int, int]
    mask_id: int
    rows: Int[Tensor, " canvases"]
    marked: Bool[Tensor, " canvases"] | None = None


@dataclass(frozen=True)
class Places:
    """Some places of a window, one after the other.

    Attributes:
        window: the canvases.
        canvas: the canvas of each place.
        column: the place in the window.
    """

    window: Window
    canvas: Int[Tensor, " places"]
    column: Int[Tensor, " places"]

    @classmethod
    def all_of(cls, window: Window) -> "Places":
        """Every place of a window, canvas after canvas."""
        canvases, width = window.positions.shape
        device = window.ids.device
        canvas = torch.arange(canvases, device=device).repeat_interleave(width)
        return cls(window, canvas, torch.arange(width, device=device).repeat(canvases))

    @property
    def index(self) -> tuple[Int[Tensor, " places"], Int[Tensor, " places"]]:
        """What picks the values of these places from an array over the window."""
        return self.canvas, self.column

    def scatter(self, values: Shaped[Tensor, "*each places"]) -> Shaped[Tensor, "*each canvases window"]:
        """Arrays over the window with one value for each of these places, and 0 elsewhere."""
        found = values.new_zeros(*values.shape[:-1], *self.window.positions.shape)
        found[..., self.canvas, self.column] = values
        return found

    def at(self, numbers: Int[Tensor, " n"]) -> "Places":
        """Some of these places."""
        return Places(self.window, self.canvas[numbers], self.column[numbers])

    @property
    def rows(self) -> Int[Tensor, " places"]:
        """The row of the batch of each place."""
        return self.window.rows[self.canvas]

    @property
    def positions(self) -> Int[Tensor, " places"]:
        """The position of each place."""
        return self.window.positions[self.canvas, self.column]


@dataclass(frozen=True)
class Step:
    """What a decode side sees of a step.

    Attributes:
        window: the canvases.
        logits: the model's logits at the window; must not be written to.
        masked: which places of the window get a candidate: those that are not committed, and those that may be edited.
        forbidden: ids that no position may take.
        temperature: temperature of the sampling distribution; 0 is greedy.
        count: how many places get a candidate; None if only the device of the tensors knows.
    """

    window: Window
    logits: Float[Tensor, "canvases window vocab"]
    masked: Bool[Tensor, "canvases window"]
    forbidden: Int[Tensor, " f"]
    temperature: float
    count: int | None = None

    @cached_property
    def places(self) -> Places:
        """The places that get a candidate, canvas after canvas."""
        return Places(self.window, *true_places(self.masked, self.count))

    def copied_logits(self) -> Float[Tensor, "k vocab"]:
        """A copy of the logits at these places, in float32 or better, which a watermark may change."""
        logits = self.logits[self.places.index]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def neighbours(self, offset: int) -> Int[Tensor, "canvases window"]:
        """The committed token `offset` columns from each place of the window; -1 if masked or outside the canvas."""
        ids, length = self.window.ids, self.window.ids.shape[1]
        columns = self.window.start + offset + torch.arange(self.masked.shape[1], device=ids.device)
        exists = (columns >= 0) & (columns < length)
        tokens = ids[:, columns.clamp(0, length - 1)]
        return tokens.masked_fill(~exists | (tokens == self.window.mask_id), -1)


_OF_KEYED_DRAWS = "belongs to keyed draws, and this watermark has options of its own: leave it out"
_NEEDS_ORDER = "needs a rule that prefers some candidates, and this key's prefers none"
UNUSED_WITHOUT_BITS = {
    "alpha": _OF_KEYED_DRAWS,
    "bias": _OF_KEYED_DRAWS,
    "edit_threshold": "needs matches that an edit may not lose, and this watermark has none: it marks by its logits or "
    "its noise, which an edit would undo; leave it out",
    "edits": "needs bits that an edit may be held against, and this watermark has none: use replace",
}
UNUSED_WITHOUT_ORDER = {
    "lookahead": f"above 1 {_NEEDS_ORDER}: use 1",
    "min_relative_reward": f"{_NEEDS_ORDER}: leave it out",
}


class DecodeSide(ABC):
    """What a watermark does to the steps of a batch of rows, some of which are marked.

    A class that inherits from this marks nothing until it overrides something; it must write `marked`. There are three
    ways to mark, which may be combined:

    - keyed bits: `signs`, with `alpha` above 0 for keyed draws. Where a rule has none, no edit can be held against a
      match, so an edit threshold is `unused`.
    - `logits`, which changes the distribution that is drawn from and rewarded.
    - `noise`, which draws the candidates.

    `preferred` makes an order by matches of it (paper, Algorithm 2). A rule's side takes keys, too (`KeyedSide`).

    Attributes:
        marks_by_order: whether the order of commits carries the mark, so that steps which leave no order to choose
            take it away.
        unused: the settings that have no meaning for this watermark, and why; by default those of keyed bits and of an
            order by matches.
    """

    marks_by_order: ClassVar[bool] = False
    unused: ClassVar[Mapping[str, str]] = UNUSED_WITHOUT_BITS | UNUSED_WITHOUT_ORDER

    @abstractmethod
    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have a key; row -1 has none."""

    @classmethod
    def refuse_unused(cls, settings: Mapping[str, Any]) -> None:
        """Refuse settings that have no meaning for this watermark (`unused`) and are not at their default.

        Args:
            settings: fields of `DecodeConfig`; their values need not be valid.

        Raises:
            SettingsError: there is one; it names the field.
        """
        for name, reason in cls.unused.items():
            value = settings.get(name)
            if is_of(value, int, float, str) and value != getattr(DecodeConfig, name):
                raise SettingsError(reason, field=name)

    @classmethod
    def check_config(cls, config: DecodeConfig) -> None:
        """Refuse settings that have no meaning for this watermark, or take the mark away.

        Raises:
            SettingsError: there are some; it names the field.
        """
        cls.refuse_unused(config.to_dict())

    def reach(self) -> int:
        """How many places away the farthest committed token is that the bits of a candidate depend on; 0 for none."""
        return 0

    def reached(self, places: Places) -> Bool[Tensor, " places"]:
        """At which places a candidate may complete a bit."""
        return self.marked(places.rows)

    def signs(
        self,
        tokens: Int[Tensor, "places candidates"],
        places: Places,  # noqa: ARG002
    ) -> Int8[Tensor, "places candidates bits"]:
        """1 for each bit of 1 that a candidate would complete, -1 for each bit of 0; 0 where it completes none.

        Bits come in the order in which a draw takes them up. Those of one candidate are different bits of the key.

        Args:
            tokens: the candidates at each place, committed or not; -1 for none.
            places: where they would stand, each alone: what else would be committed there is not seen.
        """
        return tokens.new_zeros(*tokens.shape, 0, dtype=torch.int8)

    def net(self, window: Window) -> Int[Tensor, " canvases"]:
        """How many different bits of the committed tokens of each canvas are 1, less those that are 0."""
        return torch.zeros_like(window.rows)

    @classmethod
    def alpha(cls, config: DecodeConfig) -> float:  # noqa: ARG003
        """How far draws go towards the key's bits, from 0 (plain draws) to 1."""
        return 0.0

    @classmethod
    def steers(cls, config: DecodeConfig) -> bool:
        """Whether draws are moved by keyed bits under these settings."""
        return bool(cls.alpha(config) or config.bias)

    def logits(self, step: Step) -> Float[Tensor, "k vocab"] | None:  # noqa: ARG002
        """The logits at the places of a step from which candidates are drawn and rewarded; None for the model's own."""
        return None

    def noise(self, step: Step) -> Float[Tensor, "k vocab"] | None:  # noqa: ARG002
        """Gumbel noise that draws the candidates at the places of a step, and enters no reward; None for plain draws.

        In rows without a key, draws are plain all the same.
        """
        return None

    def had_choice(
        self,
        drawn: Bool[Tensor, "rows window"],
        left: Int[Tensor, " rows"],  # noqa: ARG002
        config: DecodeConfig,  # noqa: ARG002
    ) -> Bool[Tensor, "rows window"]:
        """Which candidates of marked rows had a choice, where a mark can be; by default those whose draw had one.

        Args:
            drawn: whether the draw of each had a choice.
            left: how many places of the block each row has left after the step.
            config: the decoding settings.
        """
        return drawn

    def preferred(self, matched: Bool[Tensor, "canvases window"]) -> Bool[Tensor, "canvases window"] | None:  # noqa: ARG002
        """Of the candidates, by whether they match, those that are committed first; None, the default, for no order."""
        return None

    def matched(
        self,
        tokens: Int[Tensor, "canvases window"],
        window: Window,
        net_bits: Int[Tensor, "canvases window"] | None,
    ) -> Bool[Tensor, "canvases window"]:
        """Whether each candidate matches; in rows without a key all do.

        Args:
            tokens: the candidates.
            window: where they would stand.
            net_bits: how many bits of 1 the draw of each saw, less those of 0; None if draws were plain.
        """
        matched = torch.zeros_like(tokens, dtype=torch.bool) if net_bits is None else net_bits > 0
        return matched >= (self.marked(window.rows) if window.marked is None else window.marked)[:, None]


class NoMark(DecodeSide):
    """The decode side of text without a mark, for which every setting will do."""

    unused = MappingProxyType({})

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """No row is."""
        return torch.zeros_like(rows, dtype=torch.bool)

    def matched(self, tokens: Tensor, window: Window, net_bits: Tensor | None) -> Bool[Tensor, "canvases window"]:  # noqa: ARG002
        """Each candidate does."""
        return torch.ones_like(tokens, dtype=torch.bool)
