"""Texts that the engines' core and the scheduler for diffusers wrote when they were committed: the same token ids.

They change only on purpose. To write them anew: `PYTHONPATH=tests python tests/engines/test_golden_steps.py`
"""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark import WatermarkKey
from dgmark.decode import DecodeConfig, KeyStore
from dgmark.decode.steps.draws import uniform_draws
from dgmark.engines.core import Block, mark, mark_edits, propose_block
from dgmark.models.toy import ToyDenoiser
from support.goldens import check_equal, read_golden, words_of, write_golden
from support.known_keys import bound_key
from support.unchecked import unchecked

GOLDEN = Path(__file__).parents[1] / "golden" / "steps.json"

TOY = ToyDenoiser(words=120, padding=0, spread=20.0, end_bias=-60.0, forbidden_bias=-60.0)
PROMPT, LENGTH, BLOCK = 5, 24, 8
PROMPTS = torch.randint(2, 120, (12, PROMPT), generator=torch.Generator().manual_seed(1))
FORBIDDEN = torch.tensor([TOY.mask_id])

Row = list[WatermarkKey | None]


@cache
def rows_of(rule: str) -> Row:
    """The keys of twelve rows: two keys, or sub-keys, and rows without a mark."""
    if rule == "bigram":
        key = bound_key("golden steps", TOY, subkeys=64)
        one, two = key.subkey(5), key.subkey(60)
    else:
        one = bound_key("golden steps", TOY, rule="position")
        two = bound_key("golden steps", TOY, rule="position", modulus=3, code_length=0)
    return [one, two, None] * 4


STEPS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "top-k, alpha .5": {"temperature": 0.8, "top_k": 20, "alpha": 0.5},
    "greedy, bias": {"temperature": 0.0, "bias": 1.0},
    "threshold": {"commit": "threshold", "threshold": 0.1},
    "random": {"strategy": "random"},
}


def write_by_the_core(rule: str, settings: dict[str, Any], quota: int = 2) -> list[str]:
    """The text of each row, from a loop that an engine might have: each step commits, and edits at random."""
    store = KeyStore(rows_of(rule), TOY.vocab_size, "cpu", slots=4)
    config, seeds = DecodeConfig(**settings), torch.arange(12) * 12345
    canvas = torch.cat([PROMPTS, torch.zeros(12, LENGTH, dtype=torch.long)], 1)
    for start in range(PROMPT, PROMPT + LENGTH, BLOCK):
        stop = start + BLOCK
        positions = torch.arange(start - PROMPT, stop - PROMPT).expand(12, -1)
        step = 0
        while (masked := canvas[:, start:stop] == TOY.mask_id).any():
            keys, tokens = store.of(rows_of(rule)), canvas[:, :stop]
            block = Block(masked, positions, keys, tokens)
            uniforms = uniform_draws(seeds, torch.full((12,), start + step), positions)
            found = propose_block(TOY(canvas)[:, start:stop], FORBIDDEN, config, uniforms, block=block)
            chosen = mark(found, block, quota, config=config)
            now = torch.where(chosen, found.tokens, canvas[:, start:stop])
            filled = torch.cat([canvas[:, :start], now], 1)
            edits = ~masked & (found.rewards > 0.3)
            kept = mark_edits(edits, found.tokens, Block(masked & ~chosen, positions, keys, filled))
            canvas[:, start:stop] = torch.where(kept, found.tokens, now)
            step += 1
    return [words_of(row) for row in canvas[:, PROMPT:].tolist()]


class Network(torch.nn.Module):
    """The toy as diffusers' pipeline calls a network."""

    device = TOY.device

    def forward(self, ids: Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=TOY(ids).float())


PIPELINE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {"temperature": 1.0}),
    "edits": ({"alpha": 0.5}, {"temperature": 1.0, "editing_threshold": 0.3, "threshold": 0.3}),
    "greedy, bias": ({"bias": 1.0}, {"temperature": 0.0}),
}


def write_by_diffusers(rule: str, draws: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The text of each row, from diffusers' pipeline for LLaDA 2."""
    diffusers = pytest.importorskip("diffusers")
    from dgmark.engines.diffusers import MarkingBlockRefinementScheduler

    scheduler = MarkingBlockRefinementScheduler(rows_of(rule), **draws, block_length=BLOCK, num_inference_steps=BLOCK)
    pipe = diffusers.LLaDA2Pipeline(Network(), scheduler)
    pipe.set_progress_bar_config(disable=True)
    given = {"editing_threshold": None, "mask_token_id": TOY.mask_id, "generator": torch.Generator().manual_seed(2)}
    shared = {"gen_length": LENGTH, "block_length": BLOCK, "num_inference_steps": BLOCK, "output_type": "seq"}
    return [words_of(row) for row in pipe(input_ids=PROMPTS, **{**shared, **given, **settings}).sequences.tolist()]


CASES = [
    *(f"core/{rule}/{name}" for rule in ("bigram", "position") for name in STEPS),
    *(f"diffusers/{rule}/{name}" for rule in ("bigram", "position") for name in PIPELINE),
]


def figures(case: str) -> list[str]:
    """The texts of a case."""
    engine, rule, name = case.split("/")
    return write_by_the_core(rule, STEPS[name]) if engine == "core" else write_by_diffusers(rule, *PIPELINE[name])


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("case", CASES)
def test_the_texts_are_those_committed(case: str) -> None:
    golden = read_golden(GOLDEN)
    assert [*golden] == CASES
    with unchecked():
        check_equal(figures(case), golden[case], case)


if __name__ == "__main__":
    write_golden(GOLDEN, {case: figures(case) for case in CASES})
