"""What an engine runs on the device in each step; a module of its own, so that a fresh process imports little."""

import torch
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.bigram import BigramSide
from dgmark.decode.marks.key_store import Keys
from dgmark.decode.marks.position import PositionSide
from dgmark.decode.marks.rules import DecodeSide
from dgmark.decode.steps.draws import uniform_draws
from dgmark.engines.core import Block, mark, mark_edits, propose_block

BLOCK = 8
OF_POSITIONS = DecodeConfig(temperature=0.7, commit="threshold", min_relative_reward=0.2)
OF_PAIRS = DecodeConfig(temperature=0.7, bias=0.1, top_k=20)


def step(
    logits: Tensor, ids: Tensor, first: Tensor, seeds: Tensor, rows: Tensor, held: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """What an engine runs on the device in each step; `held` are the tensors of a rule."""
    left = ids.shape[1] - BLOCK
    tokens, ids = ids, ids[:, left:]
    masked = ids == 0
    positions = first[:, None] + torch.arange(BLOCK, device=ids.device)
    uniforms = uniform_draws(seeds, masked.sum(1), positions)
    rule: DecodeSide
    if held[0].dim() == 2:
        rule, config = PositionSide(tables=held[0], codes=held[1], lengths=held[2]), OF_POSITIONS
    else:
        first_half, second_half, number = held
        rule = BigramSide(first=first_half, second=second_half, number=number, nearest=1, farthest=3, fixed_shapes=True)
        config = OF_PAIRS
    block = Block(masked, positions, Keys(rule, rows), tokens)
    proposals = propose_block(logits, torch.zeros(1, dtype=torch.long), config, uniforms, block=block)
    chosen = mark(proposals, block, config=config)
    filled = Block(masked & ~chosen, positions, block.keys, tokens)
    edits = mark_edits(~masked, proposals.tokens, filled)
    return torch.where(chosen | edits, proposals.tokens, ids)
