"""What a watermark may do to a step: prefer candidates, bias logits, or replace the draw by its own noise.

dgMARK prefers candidates and leaves the logits as they are; green lists bias; Gumbel-max watermarks replace the draw.
This module knows no watermark by name and no key.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
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

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period of the position code of each row of a batch; 0 for a row without a mark."""
        ...


class Levels(NamedTuple):
    """What the pairs say of the candidates of a window.

    Attributes:
        levels: matching pairs less the others, over the pairs of each candidate with committed tokens.
        links: what committing the candidate at one place adds to the level of that at another place; None for nothing.
    """

    levels: Int[Tensor, "batch window"]
    links: Int[Tensor, "batch window window"] | None


@dataclass(frozen=True)
class Window:
    """The part of a canvas that a step fills.

    Attributes:
        ids: whole canvases; places that are not committed hold the mask id.
        start: the canvas column of the window's first place.
        masked: which places of the window are not committed.
        text: the columns [first, stop) that are read as one text.
        mask_id: the id of a position that is not committed.
    """

    ids: Int[Tensor, "batch length"]
    start: int
    masked: Bool[Tensor, "batch window"]
    text: tuple[int, int]
    mask_id: int


@runtime_checkable
class PairLevels(Protocol):
    """What the bigram rule says of candidates; it may hold rows of other rules, of which it says nothing."""

    def __call__(
        self, tokens: Int[Tensor, "canvases window"], window: Window, rows: Int[Tensor, " canvases"]
    ) -> Levels:
        """The levels of candidates on canvases of these rows of the batch."""
        ...

    def steers(self, rows: Int[Tensor, " canvases"]) -> Bool[Tensor, " canvases"]:
        """Which of these rows are under the bigram rule."""
        ...

    def edits(self, edits: Tensor, tokens: Tensor, window: Window, rows: Tensor) -> Bool[Tensor, "canvases window"]:
        """Of these edits (see `Steering.edits`), those that take no level from the text; other rows are undefined."""
        ...


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
        matching: tells which candidates are preferred.
        pairs: gives candidates levels in its rows, in place of the matching.
        bias: makes the logits from which candidates are drawn and rewarded.
        noise: makes the Gumbel noise that draws candidates; it does not enter the rewards.
    """

    matching: Matching = match_all
    pairs: PairLevels | None = None
    bias: Bias | None = None
    noise: Noise | None = None

    @classmethod
    def of(cls, steering: "Steering | Matching") -> "Steering":
        """The steering itself, or one with this matching alone."""
        return steering if isinstance(steering, Steering) else cls(steering)

    def matching_of(self, rows: Int[Tensor, " n"]) -> Matching:
        """The matching of these rows of the batch."""
        return self.matching.of_rows(rows) if isinstance(self.matching, MatchingByRow) else self.matching

    def levels(
        self, tokens: Int[Tensor, "canvases window"], window: Window, positions: Int[Tensor, " window"], rows: Tensor
    ) -> Levels:
        """The level of each candidate, higher before lower: a match has level 1, other candidates have 0 or less.

        Args:
            tokens: the candidates at the masked places of a window.
            window: the canvases.
            positions: the window's positions as the mark counts them.
            rows: the row of the batch that each canvas comes from.
        """
        matched = self.matching_of(rows)(tokens, positions).to(torch.int32)
        if self.pairs is None:
            return Levels(matched, None)
        levels, links = self.pairs(tokens, window, rows)
        return Levels(torch.where(self.pairs.steers(rows)[:, None], levels, matched), links)

    def edits(
        self,
        edits: Bool[Tensor, "canvases window"],
        tokens: Int[Tensor, "canvases window"],
        window: Window,
        positions: Int[Tensor, " window"],
        rows: Int[Tensor, " canvases"],
    ) -> Bool[Tensor, "canvases window"]:
        """Of these edits of committed tokens those that lose no match, and under the bigram rule no level.

        The arguments are those of `dgmark.decode.edits.lossless_edits`.
        """
        matching, width = self.matching_of(rows), edits.shape[1]
        before = window.ids[:, window.start : window.start + width]
        kept = edits & (matching(tokens, positions) | ~matching(before, positions))
        if self.pairs is None:
            return kept
        return torch.where(self.pairs.steers(rows)[:, None], self.pairs.edits(edits, tokens, window, rows), kept)

    def marked(self, rows: int, device: torch.device) -> Bool[Tensor, " rows"]:
        """Which rows of the batch have matching sets; only for these a lookahead has something to compare."""
        if isinstance(self.matching, MatchingByRow):
            marked = self.periods(rows, device) > 0
        else:
            marked = torch.full((rows,), self.matching is not match_all, device=device)
        return marked if self.pairs is None else marked | self.pairs.steers(torch.arange(rows, device=device))

    def periods(self, rows: int, device: torch.device) -> Int[Tensor, " rows"]:
        """The period of each row's position code; 0 if the row has no code or the matching states no periods."""
        if isinstance(self.matching, MatchingByRow):
            return self.matching.periods(rows).to(device)
        return torch.zeros(rows, dtype=torch.long, device=device)

    def check(self, config: DecodeConfig) -> None:
        """Refuse settings that have no meaning for this steering.

        Raises:
            SettingsError: a setting has no meaning here.
        """
        if self.noise is not None and config.greedy:
            raise SettingsError("a Gumbel-max watermark draws by keyed noise: it needs a temperature above 0")
        if self.noise is not None and config.noise == "fixed":
            raise SettingsError("a Gumbel-max watermark brings its own noise, which it keeps anyway: leave noise out")
        if (self.bias or self.noise) and config.edit_threshold is not None:
            raise SettingsError(
                "an edit may not lose a match, and this watermark has none: it marks by its logits or its noise, which "
                "an edit would undo; leave the edit threshold out"
            )
        if self.matching is not match_all or self.pairs or (self.bias is None and self.noise is None):
            return
        needs = "needs a matching set, and this watermark prefers no candidate"
        if config.lookahead > 1:
            raise SettingsError(f"lookahead counts matches: it {needs}; use lookahead 1")
        if config.guard or config.repetition_guard:
            raise SettingsError(f"a guard takes the preference from a match: it {needs}; leave the guard out")
