"""The decode side of TANGO: the class that completes a pair is favoured by a bias on the logits."""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.decode.marks.keyed_side import OneKeySide
from dgmark.decode.marks.rules import Step
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.decode.green_lists import without_held
from dgmark_lab.baselines.specs import TangoSpec
from dgmark_lab.baselines.tango import colour_of


class TangoSide(OneKeySide):
    """A bias to the class that completes the pair with the left token, or with the right one where that is masked.

    Tokens of the prompt are not part of a pair, as the detector does not see them.
    """

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec, colour, logits = spec_as(TangoSpec, self.key), _colours(self.key, self.device), step.copied_logits()
        left = step.neighbours(-spec.lag).masked_fill(step.window.positions < spec.lag, -1)
        beside = torch.where(left >= 0, left, step.neighbours(spec.lag))[step.places.index]
        known = (beside >= 0).nonzero()[:, 0]
        wanted = -colour[beside[known]] % spec.classes
        favoured = colour == wanted[:, None]
        if spec.new_only:
            canvas = step.places.canvas[known]
            for offset in (-spec.lag, spec.lag):  # a pair has no order
                favoured = without_held(favoured, beside[known], offset, step, canvas)
        return logits.index_add_(0, known, favoured.to(logits.dtype), alpha=spec.delta)


@lru_cache(maxsize=8)
def _colours(key: WatermarkKey, device: torch.device) -> Int[Tensor, " vocab"]:
    return torch.from_numpy(colour_of(key).astype(np.int64)).to(device)
