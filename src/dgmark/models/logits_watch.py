"""Watch over a model's logits: no text is finished from NaN, from +inf, or from nothing but -inf.

Every forward is checked on the device, without waiting for it. The loop asks for the result once a block, and before it
finishes a row.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.errors import ModelFault
from dgmark.models.denoiser import ADVICE, value_fault


class LogitsWatch:
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
        # of each forward: its arguments, which places are faulty, and the largest logits, divided by the temperature
        self._forwards: list[tuple[int, int, Tensor, Tensor, Tensor]] = []

    def check(
        self,
        step: int,
        low: int,
        rows: Int[Tensor, " canvases"],
        masked: Bool[Tensor, "canvases window"],
        logits: Float[Tensor, "canvases window vocab"],
        tokens: Int[Tensor, "canvases window"],
    ) -> None:
        """Check the logits of a forward and the candidates that were taken from them, without waiting for the device.

        Args:
            step: number of the step.
            low: the window's first place in the region.
            rows: the row of the decode that each canvas comes from.
            masked: which places of the window are masked; only these are checked.
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
        self._forwards.append((step, low, rows, masked & ~sound, peaks))

    def raise_faults(self) -> None:
        """Wait for the device, and forget the forwards that were checked; a faulty position is a ModelFault."""
        forwards, self._forwards = self._forwards, []
        if not forwards or not torch.stack([faulty.any() for *_, faulty, _ in forwards]).any():
            return
        concerned = {int(row) for _, _, rows, faulty, _ in forwards for row in rows[faulty.any(1)]}
        step, first, _, faulty, peaks = next(forward for forward in forwards if forward[3].any())
        places = faulty.nonzero()[:, 1]
        low, high = first + int(places.min()), first + int(places.max())
        where = f"place {low}" if low == high else f"places {low} to {high}"
        raise ModelFault(
            f"{self._name} gave {value_fault(peaks[faulty])} in step {step}, at {len(places)} of {faulty.numel()} "
            f"positions of the block ({where} of what is to be written); {ADVICE}",
            sorted(concerned),
        )
