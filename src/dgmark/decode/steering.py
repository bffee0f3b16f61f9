"""What a watermark may do to a step: say which keyed bits candidates complete, bias logits, or bring its own noise.

A rule says bits, and draws, order and edits follow from them; green lists bias; Gumbel-max watermarks replace the draw.
This module knows no watermark by name and no key.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Int8
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.errors import SettingsError

# (candidates (batch, block), positions (block,) or (batch, block)) -> matching (batch, block)
Matching = Callable[[Tensor, Tensor], Tensor]


@runtime_checkable
class MatchingByRow(Protocol):
    """A matching that differs between rows; the loop takes that of the rows whose candidates it has."""

    def of_rows(self, rows: Int[Tensor, " n"]) -> Matching:
        """The matching of these rows of the batch, in this order; a row may occur several times."""
        ...

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have a mark."""
        ...

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period of the position code of each row of a batch; 0 for a row without a mark."""
        ...


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


@runtime_checkable
class Rule(Protocol):
    """The decode side of a rule. It answers one question: which keyed bits would candidates complete at some places?"""

    @property
    def ordered(self) -> bool:
        """Whether places whose candidate matches are filled first (paper, Algorithm 2).

        Draws are then plain unless the settings say otherwise; else the key's bits are in the draws.
        """
        ...

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows of the batch have a mark."""
        ...

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period of the position code of each row of a batch; 0 for none."""
        ...

    def reached(self, places: Places) -> Bool[Tensor, " places"]:
        """At which places a candidate may complete a bit."""
        ...

    def signs(self, tokens: Int[Tensor, "places candidates"], places: Places) -> Int8[Tensor, "places candidates bits"]:
        """1 for each bit of 1 that a candidate would complete, -1 for each bit of 0; 0 where it completes none.

        Bits come in the order in which a draw takes them up. Those of one candidate are different bits of the key.

        Args:
            tokens: the candidates at each place, committed or not; -1 for none.
            places: where they would stand, each alone: what else would be committed there is not seen.
        """
        ...


class MatchingRule:
    """The rule of a matching: one bit for each candidate, whether it matches. Rows without a mark have no bits.

    Args:
        matching: of the rows of a batch, or of all rows alike.
    """

    ordered = True

    def __init__(self, matching: Matching) -> None:
        self._matching = matching

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows of the batch have a mark."""
        if isinstance(self._matching, MatchingByRow):
            return self._matching.marked(rows)
        return torch.ones_like(rows, dtype=torch.bool)

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period of each row's position code; 0 if the row has no code or the matching states no periods."""
        if isinstance(self._matching, MatchingByRow):
            return self._matching.periods(rows)
        return torch.zeros(rows, dtype=torch.long)

    def reached(self, places: Places) -> Bool[Tensor, " places"]:
        """Every place of a row with a mark."""
        return self.marked(places.rows)

    def signs(self, tokens: Int[Tensor, "places candidates"], places: Places) -> Int8[Tensor, "places candidates bits"]:
        """One bit for each candidate; see `Rule`."""
        of_rows = self._matching.of_rows(places.rows) if isinstance(self._matching, MatchingByRow) else self._matching
        matched = of_rows(tokens.clamp(min=0), places.positions[:, None].expand_as(tokens))
        exists = self.marked(places.rows)[:, None] & (tokens >= 0)
        return (torch.where(matched, 1, -1) * exists).to(torch.int8)[:, :, None]


def match_all(
    tokens: Int[Tensor, "batch block"], _positions: Int[Tensor, " block"] | Int[Tensor, "batch block"]
) -> Bool[Tensor, "batch block"]:
    """The matching without a mark: every candidate matches, so that the control is the same loop."""
    return torch.ones_like(tokens, dtype=torch.bool)


@dataclass(frozen=True)
class View:
    """The part of a step that a bias sees: several canvases, and the model's logits at one window of them.

    Attributes:
        logits: the model's logits at the window; must not be written to.
        ids: the whole canvases.
        start: the canvas column of the window's first place.
        masked: which places of the window are not committed; outside the window these hold the mask id.
        positions: the window's positions as the mark counts them.
        mask_id: the id of a position that is not committed.
        forbidden: ids that no position may take.
        temperature: temperature of the sampling distribution; 0 is greedy.
    """

    logits: Float[Tensor, "canvases window vocab"]
    ids: Int[Tensor, "canvases length"]
    start: int
    masked: Bool[Tensor, "canvases window"]
    positions: Int[Tensor, " window"]
    mask_id: int
    forbidden: Int[Tensor, " f"]
    temperature: float

    def logits_to_propose(self) -> Float[Tensor, "k vocab"]:
        """A copy of the logits at the masked places, row by row, in float32 or better; a bias is added to it."""
        logits = self.logits[self.masked]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def neighbours(self, offset: int) -> Int[Tensor, "canvases window"]:
        """The committed token `offset` columns from each place of the window; -1 if masked or outside the canvas."""
        length = self.ids.shape[1]
        columns = self.start + offset + torch.arange(self.masked.shape[1], device=self.ids.device)
        exists = (columns >= 0) & (columns < length)
        tokens = self.ids[:, columns.clamp(0, length - 1)]
        return tokens.masked_fill(~exists | (tokens == self.mask_id), -1)


# View -> logits (k, vocab) of the masked places, row by row
Bias = Callable[[View], Tensor]
# positions (window,) -> Gumbel noise (window, vocab)
Noise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Steering:
    """How a watermark steers the loop; by default not at all.

    Attributes:
        rule: says which keyed bits candidates complete; None for no mark.
        bias: makes the logits from which candidates are drawn and rewarded.
        noise: makes the Gumbel noise that draws candidates; it does not enter the rewards.
    """

    rule: Rule | None = None
    bias: Bias | None = None
    noise: Noise | None = None

    @classmethod
    def of(cls, steering: "Steering | Matching") -> "Steering":
        """The steering itself, or one with this matching alone."""
        if isinstance(steering, Steering):
            return steering
        return cls() if steering is match_all else cls(MatchingRule(steering))

    def alpha(self, config: DecodeConfig) -> float:
        """How far draws go towards the key's bits; 0 at temperature 0, where nothing is drawn."""
        if self.rule is None or config.greedy:
            return 0.0
        if config.alpha is None:
            return 0.0 if self.rule.ordered else 1.0
        return config.alpha

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows of the batch have a mark of a rule."""
        return torch.zeros_like(rows, dtype=torch.bool) if self.rule is None else self.rule.marked(rows)

    def check(self, config: DecodeConfig) -> None:
        """Refuse settings that have no meaning for this steering, or under which it leaves no mark.

        Raises:
            SettingsError: a setting has no meaning here, or takes the mark away.
        """
        if self.bias is not None or self.noise is not None:
            self._check_baseline(config)
        elif self.rule is None or self.rule.ordered:
            return
        elif not (self.alpha(config) or config.bias):
            why, instead = "with alpha 0 draws are plain", "an alpha above 0"
            if config.greedy:
                why, instead = "at temperature 0 nothing is drawn", "a temperature above 0"
            raise SettingsError(
                f"{why}, so rule bigram leaves no mark: give a bias, {instead}, or a key of rule position, which marks "
                "by the order alone"
            )
        needs = "needs a matching set, and this watermark prefers no candidate"
        if config.lookahead > 1:
            raise SettingsError(f"lookahead counts matches: it {needs}; use lookahead 1")
        if config.guard or config.repetition_guard:
            raise SettingsError(f"a guard takes the preference from a match: it {needs}; leave the guard out")

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
