"""What an engine runs on the device in each step; a module of its own, so that a fresh process imports little."""

import torch
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.matching import Keys
from dgmark.engines.core import mark, propose_block, uniform_draws

CONFIG = DecodeConfig(temperature=0.7, commit="threshold", guard=0.2)


def step(
    logits: Tensor,
    ids: Tensor,
    first: Tensor,
    seeds: Tensor,
    tables: Tensor,
    codes: Tensor,
    periods: Tensor,
    rows: Tensor,
) -> Tensor:
    """What an engine runs on the device in each step."""
    masked = ids == 0
    positions = first[:, None] + torch.arange(ids.shape[1], device=ids.device)
    uniforms = uniform_draws(seeds, masked.sum(1), positions)
    tokens, confidence = propose_block(logits, torch.zeros(1, dtype=torch.long), CONFIG, uniforms)
    chosen = mark(confidence, masked, tokens, positions, Keys(tables, codes, periods, rows), config=CONFIG)
    return torch.where(chosen, tokens, ids)
