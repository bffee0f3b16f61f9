"""What an engine runs on the device in each step; a module of its own, so that a fresh process imports little."""

import torch
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.matching import Keys
from dgmark.decode.pair_levels import PairKeys
from dgmark.engines.core import mark, mark_edits, propose_block, uniform_draws

BLOCK, DISTANCES = 8, (1, 3)
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
    pairs: tuple[Tensor, Tensor, Tensor],
) -> Tensor:
    """What an engine runs on the device in each step."""
    left = ids.shape[1] - BLOCK
    tokens, ids = ids, ids[:, left:]
    masked = ids == 0
    positions = first[:, None] + torch.arange(BLOCK, device=ids.device)
    uniforms = uniform_draws(seeds, masked.sum(1), positions)
    candidates, confidence = propose_block(logits, torch.zeros(1, dtype=torch.long), CONFIG, uniforms)
    keys = Keys(tables, codes, periods, rows, PairKeys(*pairs, *DISTANCES))
    chosen = mark(confidence, masked, candidates, positions, keys, config=CONFIG, tokens=tokens)
    edits = mark_edits(~masked, tokens, candidates, positions, keys)
    return torch.where(chosen | edits, candidates, ids)
