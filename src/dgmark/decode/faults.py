"""Watch over a model's logits: no text is finished from NaN, from +inf, or from nothing but -inf.

Every forward is looked at on the device, without waiting for it. The loop asks for the result once a block, and before
it finishes a row.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.errors import ModelFault
from dgmark.models.denoiser import ADVICE, value_fault


@dataclass(frozen=True)
class _Look:
    """What one forward gave."""

    step: int
    low: int
    rows: Int[Tensor, " canvases"]
    faulty: Bool[Tensor, "canvases window"]
    peaks: Float[Tensor, "canvases window"]  # the largest logits, divided by the temperature


class Watch:
    """The forwards since the last check.

    A position is faulty if it has NaN or +inf among its logits (also once they are divided by the temperature), or if
    no id that may be written has a logit above -inf. Single ids with -inf are allowed: models rule out ids with it.

    Args:
        name: the model's name.
        vocab_size: the last axis of its logits.
        forbidden: ids that no position may take.
        temperature: temperature of the sampling distribution; 0 is greedy.
    """

    def __init__(self, name: str, vocab_size: int, forbidden: Int[Tensor, " f"], temperature: float) -> None:
        self._name, self._temperature = name, temperature
        self._permitted = torch.ones(vocab_size, dtype=torch.bool, device=forbidden.device)
        self._permitted[forbidden] = False
        self._looks: list[_Look] = []

    def look(
        self,
        step: int,
        low: int,
        rows: Int[Tensor, " canvases"],
        masked: Bool[Tensor, "canvases window"],
        logits: Float[Tensor, "canvases window vocab"],
        tokens: Int[Tensor, "canvases window"],
    ) -> None:
        """Look at the logits of a forward and at the candidates that were taken from them.

        Args:
            step: number of the step.
            low: the window's first place in the region.
            rows: the row of the decode that each canvas comes from.
            masked: which places of the window are masked; only these are looked at.
            logits: the model's logits at the window.
            tokens: the candidate at each masked place.
        """
        # one pass: the largest logit is NaN if any is, +inf if any is, and -inf only if all are
        peaks = logits.amax(-1).to(torch.promote_types(logits.dtype, torch.float32))
        if self._temperature:
            peaks = peaks / self._temperature
        # the candidate is sound too: if all permitted ids have -inf, it is forbidden or has -inf itself
        sound = self._permitted[tokens] & (logits.gather(-1, tokens[..., None])[..., 0] > -torch.inf)
        sound &= peaks.isfinite()
        self._looks.append(_Look(step, low, rows, masked & ~sound, peaks))

    def check(self) -> None:
        """Wait for the device, and forget the forwards looked at.

        Raises:
            ModelFault: a position was faulty.
        """
        looks, self._looks = self._looks, []
        if not looks or not torch.stack([look.faulty.any() for look in looks]).any():
            return
        first = next(look for look in looks if look.faulty.any())
        places = first.faulty.nonzero()[:, 1]
        low, high = first.low + int(places.min()), first.low + int(places.max())
        where = f"place {low}" if low == high else f"places {low} to {high}"
        raise ModelFault(
            f"{self._name} gave {value_fault(first.peaks[first.faulty])} in step {first.step}, at {len(places)} of "
            f"{first.faulty.numel()} positions of the block ({where} of what is to be written); {ADVICE}",
            sorted({int(row) for look in looks for row in look.rows[look.faulty.any(1)]}),
        )
