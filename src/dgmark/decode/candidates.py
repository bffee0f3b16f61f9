"""From a forward's logits to candidates on whole canvases: the rows' draws, a watermark's bias and noise.

The draws of a row depend on its seed and on the number of earlier draws for it, never on its neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.canvas import Canvas
from dgmark.decode.config import DecodeConfig
from dgmark.decode.proposals import propose
from dgmark.decode.steering import Steering, View
from dgmark.models.denoiser import Denoiser, traits_of


@dataclass
class Candidates:
    """Proposals at a window of several canvases, and whether each matched when a step last chose among them."""

    tokens: Int[Tensor, "canvases window"]
    rewards: Float[Tensor, "canvases window"]
    matched: Bool[Tensor, "canvases window"] | None = None

    def at(self, rows: Tensor) -> "Candidates":
        """The candidates of some canvases."""
        return Candidates(self.tokens[rows], self.rewards[rows])

    def where(self, places: Bool[Tensor, "canvases window"], new: "Candidates") -> "Candidates":
        """These candidates, with the new ones at some places."""
        return Candidates(torch.where(places, new.tokens, self.tokens), torch.where(places, new.rewards, self.rewards))

    def put(self, rows: Tensor, new: "Candidates") -> None:
        """Replace the candidates of some canvases."""
        self.tokens[rows], self.rewards[rows] = new.tokens, new.rewards


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
        self._steering = steering
        self._tempered = traits_of(model).confidence_source == "sampling"
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        fixed = config.noise == "fixed" and not config.greedy
        self._fixed = _FixedNoise(self._generators, model.vocab_size, device) if fixed else None
        self._start, self._positions = canvas.start, canvas.positions
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
        positions = self._positions[low : low + masked.shape[1]]
        noise = self._noise(rows, masked, positions, low)  # a block's fixed noise is drawn before the uniforms
        proposals = propose(
            self._logits(logits, ids, masked, positions, low),
            self._uniforms(rows, masked),
            self.forbidden,
            self._config,
            tempered=self._tempered,
            noise=noise,
            refused=None if refused is None else refused[masked],
        )
        tokens = torch.zeros_like(masked, dtype=torch.long).masked_scatter(masked, proposals.tokens)
        rewards = torch.zeros_like(masked, dtype=proposals.rewards.dtype).masked_scatter(masked, proposals.rewards)
        if self._config.strategy == "left_to_right":
            places = torch.arange(masked.shape[1], device=masked.device, dtype=rewards.dtype)
            rewards = -places.expand_as(masked) * masked
        return Candidates(tokens, rewards)

    def _uniforms(self, rows: Tensor, masked: Tensor) -> Float[Tensor, "k 2"]:
        """Two numbers for each masked place; each row's generator draws for the whole window, masked or not."""
        owners, counts = torch.unique_consecutive(rows, return_counts=True)
        draws = [
            torch.rand(count, masked.shape[1], 2, generator=self._generators[owner], dtype=torch.float64)
            for owner, count in zip(owners.tolist(), counts.tolist(), strict=True)
        ]
        return torch.cat(draws).to(masked.device)[masked]

    def _noise(self, rows: Tensor, masked: Tensor, positions: Tensor, low: int) -> Float[Tensor, "k vocab"] | None:
        """Gumbel noise for each masked place: the watermark's, or the row's own if fixed; None draws by uniforms."""
        if self._steering.noise is not None:
            return self._steering.noise(positions)[masked.nonzero()[:, 1]]
        return None if self._fixed is None else self._fixed(rows, masked, low)

    def _logits(self, logits: Tensor, ids: Tensor, masked: Tensor, positions: Tensor, low: int) -> Tensor:
        """The logits at the masked places, row by row, under the watermark's bias."""
        if self._steering.bias is None:
            return logits[masked]
        start, temperature = self._start + low, self._config.temperature
        view = View(logits, ids, start, masked, positions, self._mask_id, self.forbidden, temperature)
        return self._steering.bias(view)
