"""The decode side of a watermark: which keyed bits candidate tokens would complete; or how it biases or draws.

A rule says bits, and draws, order and edits follow from them. Marks that have no bits bias the logits (green lists), or
replace the noise of the draw (Gumbel-max). This module knows no watermark by name and no key.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.errors import SettingsError


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
    """

    ids: Int[Tensor, "canvases length"]
    start: int
    positions: Int[Tensor, "canvases window"]
    text: tuple[int, int]
    mask_id: int
    rows: Int[Tensor, " canvases"]


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
class View:
    """What a bias sees of a step.

    Attributes:
        window: the canvases.
        logits: the model's logits at the window; must not be written to.
        masked: which places of the window are not committed; outside the window these hold the mask id.
        forbidden: ids that no position may take.
        temperature: temperature of the sampling distribution; 0 is greedy.
    """

    window: Window
    logits: Float[Tensor, "canvases window vocab"]
    masked: Bool[Tensor, "canvases window"]
    forbidden: Int[Tensor, " f"]
    temperature: float

    @property
    def positions(self) -> Int[Tensor, " window"]:
        """The positions of the window, which all canvases share."""
        return self.window.positions[0]

    def logits_to_propose(self) -> Float[Tensor, "k vocab"]:
        """A copy of the logits at the masked places, row by row, in float32 or better; a bias is added to it."""
        logits = self.logits[self.masked]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def neighbours(self, offset: int) -> Int[Tensor, "canvases window"]:
        """The committed token `offset` columns from each place of the window; -1 if masked or outside the canvas."""
        ids, length = self.window.ids, self.window.ids.shape[1]
        columns = self.window.start + offset + torch.arange(self.masked.shape[1], device=ids.device)
        exists = (columns >= 0) & (columns < length)
        tokens = ids[:, columns.clamp(0, length - 1)]
        return tokens.masked_fill(~exists | (tokens == self.window.mask_id), -1)


# the model's logits at the masked places, changed: (k, vocab), row by row
Bias = Callable[[View], Tensor]
# positions (window,) -> Gumbel noise (window, vocab) that draws the candidates; it does not enter the rewards
Noise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Rule:
    """What a watermark does to a step. By itself it has no bits, so that `Rule()` marks nothing.

    Attributes:
        bias: makes the logits from which candidates are drawn and rewarded; None for the model's own.
        noise: makes the Gumbel noise that draws candidates; None for that of the row's generator.
    """

    bias: Bias | None = None
    noise: Noise | None = None

    # whether candidates complete bits of the key
    has_bits: ClassVar[bool] = False
    # whether places whose candidate matches are filled first (paper, Algorithm 2); draws are then plain by default
    ordered: ClassVar[bool] = False
    # whether the bits depend on the committed tokens beside a place
    reads_neighbours: ClassVar[bool] = False

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows of the batch have bits."""
        return torch.zeros_like(rows, dtype=torch.bool)

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

    def matching(self, tokens: Int[Tensor, "canvases window"], window: Window) -> Bool[Tensor, "canvases window"]:
        """Whether each candidate matches: it completes as many bits of 1 as of 0, or more. Without bits all match."""
        signs = self.signs(tokens.reshape(-1, 1), Places.all_of(window))
        return signs.sum((-2, -1)).view_as(tokens) >= 0

    def alpha(self, config: DecodeConfig) -> float:
        """How far draws go towards the key's bits; 0 at temperature 0, where nothing is drawn."""
        if config.greedy or not self.has_bits:
            return 0.0
        if config.alpha is None:
            return 0.0 if self.ordered else 1.0
        return config.alpha

    def check(self, config: DecodeConfig) -> None:
        """Refuse settings that have no meaning for this watermark.

        Raises:
            SettingsError: a setting has no meaning here, or takes the mark away.
        """
        if self.bias is not None or self.noise is not None:
            self._check_baseline(config)

    def _check_baseline(self, config: DecodeConfig) -> None:
        """Refuse settings that have no meaning for a watermark that biases logits or brings its own noise."""
        if config.alpha is not None or config.bias:
            raise SettingsError(
                "alpha and bias belong to keyed draws, and a baseline has its own options: leave them out"
            )
        if self.noise is not None and config.greedy:
            raise SettingsError("a Gumbel-max watermark draws by keyed noise: it needs a temperature above 0")
        if self.noise is not None and config.noise == "fixed":
            raise SettingsError("a Gumbel-max watermark brings its own noise, which it keeps anyway: leave noise out")
        if config.edit_threshold is not None:
            raise SettingsError(
                "an edit may not lose a match, and this watermark has none: it marks by its logits or its noise, which "
                "an edit would undo; leave the edit threshold out"
            )
        check_unordered(config)


def check_unordered(config: DecodeConfig) -> None:
    """Refuse settings of an order by matches, for a watermark without one.

    Raises:
        SettingsError: such a setting is given.
    """
    needs = "needs a matching set, and this watermark prefers no candidate"
    if config.lookahead > 1:
        raise SettingsError(f"lookahead counts matches: it {needs}; use lookahead 1")
    if config.min_relative_reward:
        raise SettingsError(f"min_relative_reward chooses among matches: it {needs}; leave it out")
