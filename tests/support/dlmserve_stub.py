"""As much of dlmserve as the adapter meets: its loop over a padded batch, with the names and signatures of 0.1.1."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from support.engine_packages import stub


def init_state(prompt: Tensor, params: Any, mask_id: int) -> Any:
    masks = prompt.new_full((1, params.gen_length), mask_id)
    return SimpleNamespace(seq=torch.cat([prompt, masks], 1), prompt_len=prompt.shape[1], params=params, block_idx=0)


def commit_top_k_by_confidence(
    x: Tensor,
    logits: Tensor,
    mask_index: Tensor,
    k_per_row: Tensor,
    block_end_abs: Tensor | int | None = None,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    raise AssertionError("this function is replaced")


def step_batch(
    model: Any, states: list[Any], mask_id: int, pad_token_id: int, generator: torch.Generator | None = None
) -> None:
    """One token in each row, in the leftmost block that has a mask; answers begin in one column."""
    start = max(state.prompt_len for state in states)
    length = start + max(state.params.gen_length for state in states)
    x = torch.full((len(states), length), pad_token_id)
    logits = torch.zeros(len(states), length, model.vocab_size, dtype=torch.float64)
    for row, state in enumerate(states):
        own = slice(start - state.prompt_len, start + state.params.gen_length)
        x[row, own], logits[row, own] = state.seq[0], model(state.seq)[0]
    ends = torch.tensor([start + (state.block_idx + 1) * state.params.block_length for state in states])
    commit = sys.modules["dlmserve.denoise_loop"].commit_top_k_by_confidence
    ones = torch.ones(len(states), dtype=torch.long)
    x = commit(x, logits, x == mask_id, ones, ends, temperature=states[0].params.temperature, generator=generator)
    for row, state in enumerate(states):
        state.seq = x[row : row + 1, start - state.prompt_len : start + state.params.gen_length]
        if not (x[row, start : ends[row]] == mask_id).any():
            state.block_idx += 1


def _request_id(incoming: Any) -> str:
    return str(incoming.headers["x-request-id"])


@contextmanager
def installed() -> Iterator[Any]:
    """The modules that the adapter patches."""
    loop = stub("dlmserve.denoise_loop", init_state=init_state, commit_top_k_by_confidence=commit_top_k_by_confidence)
    engine = stub("dlmserve.engine", init_state=init_state, step_batch=step_batch)
    server = stub("dlmserve.api.server", _request_id=_request_id)
    api = stub("dlmserve.api", server=server)
    package = stub("dlmserve", denoise_loop=loop, engine=engine, api=api)
    modules = {module.__name__: module for module in (loop, engine, server, api, package)}
    with patch.dict(sys.modules, modules):
        yield SimpleNamespace(loop=loop, engine=engine, server=server)
