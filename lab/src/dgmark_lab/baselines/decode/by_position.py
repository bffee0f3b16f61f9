"""The decode side of Unigram, CDMArk and PATTERN-MARK: a bias that depends on the token and the position alone."""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dgmark.decode.marks.keyed_side import OneKeySide
from dgmark.decode.marks.rules import Step
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.cdmark import cdmark_biases
from dgmark_lab.baselines.green_lists import unigram_biases
from dgmark_lab.baselines.pattern_mark import pattern_mark_biases

_BIASES = {"unigram": unigram_biases, "cdmark": cdmark_biases, "pattern-mark": pattern_mark_biases}


class ByPositionSide(OneKeySide):
    """Row `position % period` of the key's table of biases is added at each position."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        table = _table(self.key, self.device)
        return step.copied_logits().add_(table[step.places.positions % len(table)])


@lru_cache(maxsize=8)
def _table(key: WatermarkKey, device: torch.device) -> Float[Tensor, "period vocab"]:
    return torch.from_numpy(_BIASES[key.spec.rule](key).astype(np.float32)).to(device)
