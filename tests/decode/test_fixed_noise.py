"""Kept sampling noise: against direct Gumbel-max in plain Python, its distribution, and what it leaves alone."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from dgmark.decode import DecodeConfig, Response, decode, match_all
from dgmark.decode.matching import key_steering
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key, matches
from support.plain_decoding import alpha_of, bits_at, drawn_with_bits

PROMPT = [2, 7, 5]
LENGTH, BLOCK = 18, 6
TOY = ToyDenoiser(end_ids=())
KEPT = DecodeConfig(LENGTH, BLOCK, noise="fixed")


MATCHES, PAIRS = (bound_key("noise", TOY, rule=rule) for rule in ("position", "bigram"))


def run(model: ToyDenoiser, config: DecodeConfig, key: WatermarkKey | None = None, seed: int = 0) -> Response:
    return decode(model, torch.tensor([PROMPT]), config, key_steering([key], torch.device("cpu")), [seed])[0]


# ---- direct Gumbel-max, in plain Python; shares no line with the package's loop, proposals or noise ----


def gumbel_max(
    model: ToyDenoiser, config: DecodeConfig, key: WatermarkKey | None, seed: int
) -> tuple[list[int], list[int]]:
    """The tokens, and the positions in the order of their commits."""
    generator = torch.Generator().manual_seed(seed)
    permitted = [v for v in range(model.tokenizer.vocab_size) if v != model.mask_id]
    ordered, alpha = key is not None and key.spec.rule == "position", alpha_of(config, key)
    y, order = [model.mask_id] * config.length, []
    for low in range(0, config.length, config.block_length):
        block = range(low, low + config.block_length)
        uniforms = torch.rand(len(block), model.vocab_size, generator=generator, dtype=torch.float64).tolist()
        noise = [[-math.log(-math.log(u)) for u in row] for row in uniforms]
        while any(y[i] == model.mask_id for i in block):
            torch.rand(len(block), 2, generator=generator, dtype=torch.float64)  # the draws of one forward
            logits = model(torch.tensor([PROMPT + y]))[0].tolist()[len(PROMPT) :]
            text = [-1 if token == model.mask_id else token for token in y]
            found = {
                i: drawn_with_bits(
                    logits[i], permitted, config, alpha, (0, 0), partial(bits_at, key, text, i), noise[i - low]
                )
                for i in block
                if y[i] == model.mask_id
            }
            best = min(
                found, key=lambda i: (ordered and key and not matches(key, found[i].token, i), -found[i].score, i)
            )
            y[best] = found[best].token
            order.append(best)
    return y, order


@pytest.mark.parametrize("key", [None, MATCHES, PAIRS], ids=["unmarked", "position", "bigram"])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, None, None), (0.6, None, None), (1.7, 5, None), (1.0, 6, 0.8)]
)
def test_kept_noise_is_direct_gumbel_max(
    temperature: float, top_k: int | None, top_p: float | None, key: WatermarkKey | None
) -> None:
    config = replace(KEPT, temperature=temperature, top_k=top_k, top_p=top_p)
    for seed in range(4):
        response = run(TOY, config, key, seed)
        assert (response.token_ids, response.trace.position) == gumbel_max(TOY, config, key, seed)


# ---- what it means ----


@dataclass(frozen=True)
class Still(ToyDenoiser):
    """A toy whose logits do not depend on the canvas."""

    def __call__(self, ids: Tensor) -> Tensor:
        return super().__call__(torch.zeros_like(ids))


def test_positions_and_blocks_draw_independently_from_the_softmax() -> None:
    """Pearson's chi-square test of 4,500 draws; a true sampler fails it with probability 1e-6 over seeds (fixed)."""
    model = Still(words=6, padding=2, end_ids=(), spread=3.0)
    config = replace(KEPT, temperature=1.3, length=1500, steps=500)
    rows = decode(model, torch.tensor([[3], [3], [3]]), config, match_all, [1, 2, 3])
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
    responses = [run(TOY, replace(config, lookahead_proposals=way), MATCHES, 5) for way in ("kept", proposals)]
    assert responses[0] == responses[1]
    assert responses[0] != run(TOY, replace(config, noise="redrawn", lookahead_proposals=proposals), MATCHES, 5)


def test_greedy_text_has_no_noise_to_keep() -> None:
    greedy = replace(KEPT, temperature=0.0)
    assert run(TOY, greedy) == run(TOY, replace(greedy, noise="redrawn"))
