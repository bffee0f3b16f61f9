"""Watch over a model's logits: no text is finished from NaN, from +inf, or from nothing but -inf.

What a check needs of each forward is kept on the device, without waiting for it. The loop asks for the result once a
block, and before it finishes a row.
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
    """

    def __init__(self, name: str, vocab_size: int, forbidden: Int[Tensor, " f"], temperature: float) -> None:
        self._name, self._temperature = name, temperature
        self._permitted = torch.ones(vocab_size, dtype=torch.bool, device=forbidden.device)
        self._permitted[forbidden] = False
        # of each forward: its number, the first place, the rows, which places are masked, the largest logit of each,
        # the candidates, and their logits
        self._forwards: list[tuple[int, int, Tensor, Tensor, Tensor, Tensor, Tensor]] = []

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

        Only masked places are checked. `low` is the window's first place in the region, and `rows` are the rows of the
        decode that the canvases come from.
        """
        # one pass: the largest logit is NaN if any is, +inf if any is, and -inf only if all are
        peaks, chosen = logits.amax(-1), logits.gather(-1, tokens[..., None])[..., 0]
        self._forwards.append((step, low, rows, masked, peaks, tokens, chosen))

    def raise_faults(self) -> None:
        """Wait for the device, and forget the forwards that were checked; a faulty position is a ModelFault."""
        forwards, self._forwards = self._forwards, []
        if not forwards:
            return
        # of all forwards together: an operation costs more than its numbers
        columns = zip(*(forward[3:] for forward in forwards), strict=True)
        masked, peaks, tokens, chosen = (torch.cat([values.flatten() for values in column]) for column in columns)
        peaks = peaks.to(torch.promote_types(peaks.dtype, torch.float32))
        if self._temperature:
            peaks = peaks / self._temperature
        # the candidate is sound too: if all permitted ids have -inf, it is forbidden or has -inf itself
        faults = masked & ~(peaks.isfinite() & self._permitted[tokens] & (chosen > -torch.inf))
        if not faults.any():
            return
        sizes = [forward[3].numel() for forward in forwards]
        by_forward = zip(forwards, torch.split(faults, sizes), torch.split(peaks, sizes), strict=True)
        found = [(forward, bad.view(forward[3].shape), peak) for forward, bad, peak in by_forward if bad.any()]
        concerned = {int(row) for forward, faulty, _ in found for row in forward[2][faulty.any(1)]}
        (step, first, *_), faulty, peak = found[0]
        places = faulty.nonzero()[:, 1]
        low, high = first + int(places.min()), first + int(places.max())
        where = f"place {low}" if low == high else f"places {low} to {high}"
        raise ModelFault(
            f"{self._name} gave {value_fault(peak[faulty.flatten()])} in step {step}, at {len(places)} of "
            f"{faulty.numel()} positions of the block ({where} of what is to be written); {ADVICE}",
            sorted(concerned),
        )
