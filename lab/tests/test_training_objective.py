"""The objectives against a loop that says them word by word, and the bound against its exact value."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from dgmark_lab.training.config import LlamaNetwork, Masking
from dgmark_lab.training.networks import Network, build_network
from dgmark_lab.training.objective import (
    Batch,
    HeldOut,
    autoregressive,
    held_out_bound,
    masked_batch,
    masked_diffusion,
    row_nats,
    stratified_times,
    target_losses,
)
from dgmark_lab.training.rows import RowBatch

VOCAB, MASK, END = 11, 10, 0
SEEDS = st.integers(0, 2**32 - 1)


def small_network(mask_id: int | None = MASK) -> Network:
    """A network that has opinions: random weights, far from uniform predictions."""
    sizes = LlamaNetwork(width=16, blocks=2, heads=2, hidden=24, context=32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network(sizes, VOCAB, mask_id)
        for param in network.parameters():
            if param.ndim == 2:
                torch.nn.init.normal_(param, std=0.6)
    return network.requires_grad_(False)


def random_rows(seed: int, batch: int = 6, length: int = 24) -> RowBatch:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, length, batch, endpoint=True)
    ids = np.where(np.arange(length) < sizes[:, None], rng.integers(1, MASK, (batch, length)), END)
    return RowBatch(ids, sizes)


def log_odds(network: Network, ids: np.ndarray) -> torch.Tensor:
    found: torch.Tensor = network(torch.from_numpy(ids)).logits.log_softmax(-1)
    return found


def loss_of(network: Network, batch: Batch) -> float:
    losses, weights = target_losses(network, batch, torch.device("cpu"))
    return float((losses * weights).sum())


# ---- times ----


@given(st.integers(1, 300), SEEDS, st.floats(0, 0.5))
def test_each_stratum_of_the_times_holds_one(count: int, seed: int, smallest: float) -> None:
    times = stratified_times(count, np.random.default_rng(seed), smallest)
    assert ((times > smallest) & (times <= 1)).all() or smallest == pytest.approx(times.min())
    strata = np.ceil((np.sort(times) - smallest) / (1 - smallest) * count - 1e-9)
    assert strata.tolist() == list(range(1, count + 1))


def test_a_single_time_is_uniform() -> None:
    draws = np.concatenate([stratified_times(4, np.random.default_rng(seed))[:1] for seed in range(4000)])
    counts, _ = np.histogram(draws, bins=8, range=(0, 1))
    # 500 expected in each; 5 standard deviations
    assert np.abs(counts - 500).max() < 5 * math.sqrt(500 * 7 / 8)


# ---- masked diffusion ----


@given(SEEDS)
@settings(max_examples=10)
def test_the_loss_is_that_of_a_loop_over_masked_tokens(seed: int) -> None:
    network, rows, keep = small_network(), random_rows(seed), Masking(prefix_min=2, prefix_max=9, smallest_t=0.05)
    batch = masked_diffusion(rows, np.random.default_rng(seed), keep, MASK)
    # the same draws once more, in the order in which the objective makes them
    rng = np.random.default_rng(seed)
    times = stratified_times(6, rng, 0.05)
    drawn = rng.integers(2, 9, 6, endpoint=True)
    has_prefix = rng.random(6) < 0.5
    noise = rng.random((6, 24))
    logs, inputs = log_odds(network, batch.inputs), rows.ids.copy()
    total = 0.0
    for row in range(6):
        prefix = min(drawn[row], rows.sizes[row] - 1) if has_prefix[row] else 0
        for i in range(prefix, 24):
            if noise[row, i] < times[row]:
                inputs[row, i] = MASK
                total -= float(logs[row, i, rows.ids[row, i]]) / times[row] / (24 - prefix) / 6
    assert loss_of(network, batch) == pytest.approx(total, rel=1e-4)
    assert (batch.inputs == inputs).all()


# ---- autoregressive ----


@given(SEEDS)
@settings(max_examples=10)
def test_next_tokens_count_up_to_the_first_end_token(seed: int) -> None:
    network, rows = small_network(None), random_rows(seed)
    batch = autoregressive(rows)
    nats = []
    for ids, size in zip(rows.ids, rows.sizes, strict=True):
        for i in range(1, min(size + 1, 24)):
            before = log_odds(network, ids[None, :i])[0, -1]  # of the tokens before, and nothing else
            nats.append(-float(before[ids[i]]))
    assert loss_of(network, batch) == pytest.approx(np.mean(nats), rel=1e-3)


# ---- the bound ----


def exact_bound(network: Network, ids: np.ndarray) -> float:
    """Over all masks: the chance of one with k of L masked, over t, integrates to (k - 1)! (L - k)! / L!."""
    length = len(ids)
    total = 0.0
    for mask in map(np.array, itertools.product([False, True], repeat=length)):
        k = int(mask.sum())
        if k:
            nats = row_nats(network, masked_batch(ids[None], mask[None], np.ones(1), MASK))[0]
            total += nats * math.factorial(k - 1) * math.factorial(length - k) / math.factorial(length)
    return total


def test_the_bound_lies_within_its_stated_error() -> None:
    network, sentence = small_network(), np.array([3, 1, 4, 1, 5, 9, 2])
    held_out = HeldOut(np.tile(sentence, (256, 1)), np.full(256, 30))
    found = held_out_bound(network, held_out, repeats=16, batch=256)
    exact = exact_bound(network, sentence) / 7
    assert 0 < found.monte_carlo_error < 0.05 * exact
    assert abs(found.per_token - exact) < 4 * found.monte_carlo_error
    assert found.per_character == pytest.approx(found.per_token * 7 / 30)


def test_cross_entropy_of_an_autoregressive_model_is_per_predicted_token() -> None:
    network = small_network(None)
    ids = np.random.default_rng(1).integers(1, MASK, (5, 12))
    logs = log_odds(network, ids)[:, :-1].reshape(-1, VOCAB)
    nats = functional.nll_loss(logs, torch.from_numpy(ids[:, 1:].reshape(-1)))
    found = held_out_bound(network, HeldOut(ids, np.full(5, 40)), batch=2)
    assert found.per_token == pytest.approx(float(nats), rel=1e-4)
    assert found.per_character == pytest.approx(float(nats) * 12 / 40, rel=1e-4)
    assert found.monte_carlo_error == 0
