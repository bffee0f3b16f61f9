"""Kept sampling noise: its distribution, and what it leaves alone; `test_whole_decodes` compares its texts."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from dgmark.decode import DecodeConfig, Response, Rule, decode
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key
from support.rules import rule_of_key

PROMPT = [2, 7, 5]
LENGTH, BLOCK = 18, 6
TOY = ToyDenoiser(end_ids=())
KEPT = DecodeConfig(LENGTH, BLOCK, noise="fixed")
KEY = bound_key("noise", TOY, rule="position")


def run(model: ToyDenoiser, config: DecodeConfig, key: WatermarkKey | None = None, seed: int = 0) -> Response:
    return decode(model, torch.tensor([PROMPT]), config, rule_of_key(key), [seed])[0]


@dataclass(frozen=True)
class Still(ToyDenoiser):
    """A toy whose logits do not depend on the canvas."""

    def __call__(self, ids: Tensor) -> Tensor:
        return super().__call__(torch.zeros_like(ids))


def test_positions_and_blocks_draw_independently_from_the_softmax() -> None:
    """Pearson's chi-square test of 4,500 draws; a true sampler fails it with probability 1e-6 over seeds (fixed)."""
    model = Still(words=6, padding=2, end_ids=(), spread=3.0)
    config = replace(KEPT, temperature=1.3, length=1500, steps=500)
    rows = decode(model, torch.tensor([[3], [3], [3]]), config, Rule(), [1, 2, 3])
    pairs, expected = torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.float64)
    weights = torch.softmax(model(torch.zeros(1, 1501, dtype=torch.long))[0, 1:, 1:8] / 1.3, -1)
    for row in rows:
        for i in range(0, 1500, 2):  # neighbours, to notice noise that repeats from place to place
            a, b = row.token_ids[i : i + 2]
            pairs[a, b] += 1
            expected[1:, 1:] += weights[i, :, None] * weights[i + 1]
    cells = expected > 0
    assert expected[cells].min() > 10
    assert pairs[~cells].sum() == 0
    statistic = float(((pairs - expected)[cells] ** 2 / expected[cells]).sum())
    assert statistic < chi2.isf(1e-6, int(cells.sum()) - 1)
    assert len({tuple(row.token_ids) for row in rows}) == 3


@pytest.mark.parametrize("proposals", ["redrawn", "kept"])
def test_a_lookahead_draws_what_the_next_step_draws(proposals: Any) -> None:
    config = replace(KEPT, lookahead=3)
    responses = [run(TOY, replace(config, lookahead_proposals=way), KEY, 5) for way in ("kept", proposals)]
    assert responses[0] == responses[1]
    assert responses[0] != run(TOY, replace(config, noise="redrawn", lookahead_proposals=proposals), KEY, 5)


def test_greedy_text_has_no_noise_to_keep() -> None:
    greedy = replace(KEPT, temperature=0.0)
    assert run(TOY, greedy) == run(TOY, replace(greedy, noise="redrawn"))
