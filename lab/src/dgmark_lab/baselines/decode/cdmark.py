"""The decode side of CDMArk: the same bias at every position."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from dgmark.decode.keyed_side import OneKeySide
from dgmark.decode.rules import Step
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.cdmark import spreading_vector
from dgmark_lab.baselines.decode.green_lists import biased_by_position, table_on
from dgmark_lab.baselines.prf import HashKey
from dgmark_lab.baselines.specs import CdMarkSpec


class CdMarkSide(OneKeySide):
    """Each token's entry of the key's vector is added to its logit, times delta."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec = spec_as(CdMarkSpec, self.key)
        return biased_by_position(step, _table(HashKey.of(self.key, "cdmark"), spec, self.device))


@lru_cache(maxsize=8)
def _table(hash_key: HashKey, spec: CdMarkSpec, device: torch.device) -> Float[Tensor, "1 vocab"]:
    return table_on(spec.delta * spreading_vector(hash_key, spec.table_size)[None], device)
