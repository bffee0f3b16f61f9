"""From a forward's logits to candidates on whole canvases: the rows' draws, a watermark's bits, bias and noise.

The draws of a row depend on its seed and on the number of earlier draws for it, never on its neighbours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.canvas import Canvas
from dgmark.decode.config import DecodeConfig
from dgmark.decode.draws import KeyedDraw
from dgmark.decode.proposals import propose
from dgmark.decode.steering import Places, Steering, View, Window
from dgmark.models.denoiser import Denoiser, traits_of


@dataclass
class Candidates:
    """Proposals at a window of several canvases.

    Attributes:
        tokens: the candidates v_j.
        rewards: r_j, by the model alone.
        scores: the rewards by which places are ordered (`Proposals`).
        matched: whether each candidate matches: its group, or more of its new pairs than not; always without a mark.
    """

    tokens: Int[Tensor, "canvases window"]
    rewards: Float[Tensor, "canvases window"]
    scores: Float[Tensor, "canvases window"]
    matched: Bool[Tensor, "canvases window"]

    def _each(self, change: Callable[..., Tensor], *others: "Candidates") -> "Candidates":
        fields = zip(*(vars(one).values() for one in (self, *others)), strict=True)
        return Candidates(*(change(*field) for field in fields))

    def at(self, rows: Tensor) -> "Candidates":
        """The candidates of some canvases."""
        return self._each(lambda mine: mine[rows])

    def where(self, places: Bool[Tensor, "canvases window"], new: "Candidates") -> "Candidates":
        """These candidates, with the new ones at some places."""
        return self._each(lambda mine, other: torch.where(places, other, mine), new)

    def put(self, rows: Tensor, new: "Candidates") -> None:
        """Replace the candidates of some canvases."""
        for mine, other in zip(vars(self).values(), vars(new).values(), strict=True):
            mine[rows] = other


class _FixedNoise:
    """Gumbel noise for the places of the active block, drawn from each row's generator when the block begins."""

    def __init__(self, generators: Sequence[torch.Generator], vocab: int, device: torch.device) -> None:
        self._generators, self._vocab, self._device = generators, vocab, device
        self._low: int | None = None
        self._drawn: dict[int, Tensor] = {}  # (window, vocab) for each row of the block that begins at `_low`

    def __call__(self, rows: Tensor, masked: Tensor, low: int) -> Float[Tensor, "k vocab"]:
        """The noise of each masked place, for canvases that come from these rows."""
        if low != self._low:
            self._low, self._drawn = low, {}
        window = masked.shape[1]
        return torch.cat([self._of(row, window)[places] for row, places in zip(rows.tolist(), masked, strict=True)])

    def _of(self, row: int, window: int) -> Tensor:
        if row not in self._drawn:
            shape = (window, self._vocab)
            uniform = torch.rand(shape, generator=self._generators[row], dtype=torch.float64)
            self._drawn[row] = -(-uniform.log_()).log_().to(self._device, torch.float32)
        return self._drawn[row]


class Proposer:
    """Makes the candidates of one decode; holds one random generator for each row.

    Args:
        model: the denoiser; only its ids, its vocabulary and its traits are read.
        canvas: the canvas to decode.
        config: decoding settings.
        steering: what the watermark does to a step.
        seeds: one for each row.
    """

    def __init__(
        self, model: Denoiser, canvas: Canvas, config: DecodeConfig, steering: Steering, seeds: Sequence[int]
    ) -> None:
        device = canvas.ids.device
        self._config = config
        self._steering, self._alpha = steering, steering.alpha(config)
        self._tempered = traits_of(model).confidence_source == "sampling"
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        fixed = config.noise == "fixed" and not config.greedy
        self._fixed = _FixedNoise(self._generators, model.vocab_size, device) if fixed else None
        self._start, self._positions, self._text = canvas.start, canvas.positions, canvas.text
        self._mask_id = model.mask_id
        # the mask, rows of padding, which stand for no token, and ends where the text goes on
        forbidden = {model.mask_id, *range(model.tokenizer.vocab_size, model.vocab_size)}
        ends = () if canvas.stops else model.end_ids
        self.forbidden = torch.tensor([*sorted(forbidden), *ends], device=device, dtype=torch.long)

    def __call__(
        self,
        logits: Tensor,
        ids: Tensor,
        masked: Tensor,
        rows: Tensor,
        low: int,
        refused: Bool[Tensor, "canvases window vocab"] | None = None,
    ) -> Candidates:
        """Make candidates at the masked places of a window, and at those that may be edited; 0 at the others.

        Args:
            logits: logits of the window (canvases, window, vocab).
            ids: the canvases.
            masked: which places of the window get a candidate (canvases, window).
            rows: the row of the decode that each canvas comes from, ascending.
            low: the window's first place in the region.
            refused: ids that single places may not take.
        """
        window = self.window(ids, rows, low, masked.shape[1])
        noise = self._noise(rows, masked, window, low)  # a block's fixed noise is drawn before the uniforms
        proposals = propose(
            self._logits(logits, masked, window),
            self._uniforms(rows, masked),
            self.forbidden,
            self._config,
            tempered=self._tempered,
            noise=noise,
            refused=None if refused is None else refused[masked],
            keyed=self._keyed(masked, window),
        )
        tokens, rewards, scores = (
            torch.zeros_like(masked, dtype=each.dtype).masked_scatter(masked, each)
            for each in (proposals.tokens, proposals.rewards, proposals.scores)
        )
        if self._config.strategy == "left_to_right":
            places = torch.arange(masked.shape[1], device=masked.device, dtype=rewards.dtype)
            rewards = scores = -places.expand_as(masked) * masked
        return Candidates(tokens, rewards, scores, self._matched(proposals.levels, tokens, masked, window))

    def window(self, ids: Tensor, rows: Tensor, low: int, width: int) -> Window:
        """The places from `low` on, of canvases that come from these rows of the decode."""
        positions = self._positions[low : low + width].expand(len(ids), -1)
        return Window(ids, self._start + low, positions, self._text, self._mask_id, rows)

    def _keyed(self, masked: Tensor, window: Window) -> KeyedDraw | None:
        """The keyed draw at the masked places; at those of committed tokens, which may be edited, draws are plain."""
        rule = self._steering.rule
        if rule is None or not (self._alpha or self._config.bias):
            return None
        places = Places(window, *masked.nonzero(as_tuple=True))
        committed = window.ids[places.canvas, window.start + places.column] != window.mask_id
        at = (rule.reached(places) & ~committed).nonzero()[:, 0]
        if not len(at):
            return None
        return KeyedDraw(lambda tokens: rule.signs(tokens, places.at(at)), at, self._alpha, self._config.bias)

    def _matched(self, levels: Tensor | None, tokens: Tensor, masked: Tensor, window: Window) -> Tensor:
        """Whether each candidate matches; under a rule without an order only bits that its draw saw are counted."""
        rule = self._steering.rule
        if rule is None:
            return torch.ones_like(masked)
        if rule.ordered:
            signs = rule.signs(tokens.view(-1, 1), Places.all_of(window))
            return signs.sum((-2, -1)).view_as(masked) >= 0
        matched = torch.zeros_like(masked)
        if levels is not None:
            matched = matched.masked_scatter(masked, levels > 0)
        return matched | ~rule.marked(window.rows)[:, None]

    def _uniforms(self, rows: Tensor, masked: Tensor) -> Float[Tensor, "k 2"]:
        """Two numbers for each masked place; each row's generator draws for the whole window, masked or not."""
        owners, counts = torch.unique_consecutive(rows, return_counts=True)
        draws = [
            torch.rand(count, masked.shape[1], 2, generator=self._generators[owner], dtype=torch.float64)
            for owner, count in zip(owners.tolist(), counts.tolist(), strict=True)
        ]
        return torch.cat(draws).to(masked.device)[masked]

    def _noise(self, rows: Tensor, masked: Tensor, window: Window, low: int) -> Float[Tensor, "k vocab"] | None:
        """Gumbel noise for each masked place: the watermark's, or the row's own if fixed; None draws by uniforms."""
        if self._steering.noise is not None:
            return self._steering.noise(window.positions[0])[masked.nonzero()[:, 1]]
        return None if self._fixed is None else self._fixed(rows, masked, low)

    def _logits(self, logits: Tensor, masked: Tensor, window: Window) -> Tensor:
        """The logits at the masked places, row by row, under the watermark's bias."""
        if self._steering.bias is None:
            return logits[masked]
        ids, start, positions, temperature = window.ids, window.start, window.positions[0], self._config.temperature
        view = View(logits, ids, start, masked, positions, self._mask_id, self.forbidden, temperature)
        return self._steering.bias(view)
