"""The decode side of PATTERN-MARK: a bias that alternates with the position."""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dgmark.decode.keyed_side import OneKeySide
from dgmark.decode.rules import Step
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.decode.green_lists import biased_by_position, table_on
from dgmark_lab.baselines.pattern_mark import first_part, parts_of
from dgmark_lab.baselines.specs import PatternMarkSpec


class PatternMarkSide(OneKeySide):
    """Position i is biased to part (i + start) mod 2; the key draws which part comes first."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        return biased_by_position(step, _table(self.key, self.device))


@lru_cache(maxsize=8)
def _table(key: WatermarkKey, device: torch.device) -> Float[Tensor, "2 vocab"]:
    spec, start = spec_as(PatternMarkSpec, key), first_part(key)
    part = parts_of(key, np.arange(spec.table_size))
    return table_on((part == np.array([[start], [1 - start]])) * spec.delta, device)
