"""The baselines' hash: fixed bits, the same in numpy and torch, even and without visible structure."""

import numpy as np
import pytest
import torch
from scipy import stats

from dgmark.watermark.hashes import mix
from dgmark_lab.baselines.prf import BITS, HashKey, states, threshold, uniform_bits
from support.known_keys import known_key

CONTEXTS = np.array([0, 1, 8191, 126_463])
TOKENS = np.array([0, 1, 126_463])
KEY = HashKey.of(known_key("golden"), "kgw")
GOLDEN_KEY = (5766689018236510493, 2243564912432947543)
GOLDEN_STATES = [-6485314855368160674, -1358988395787393001, -1523376476080387270, -5074049082127913008]
GOLDEN_BITS = [
    [6190138586328441, 5340502169567626, 4573743774409896],
    [1452170108517525, 3898986435202941, 7114669825206247],
    [4338793123673943, 5713136702588207, 324675092859820],
    [7100977559164047, 6141905362826259, 8792070337292380],
]


def test_the_finaliser_is_splitmix64() -> None:
    golden = np.array([0x9E3779B97F4A7C15], dtype=np.uint64).view(np.int64)
    stream = mix(1_234_567 + golden * np.array([1, 2])).view(np.uint64).tolist()
    # the first two numbers of the generator's own reference implementation for this seed
    assert stream == [6457827717110365317, 3203168211198807973]


def test_the_bits_of_a_key_never_change() -> None:
    assert (KEY.first, KEY.second) == GOLDEN_KEY
    state = states(KEY, CONTEXTS)
    assert state.tolist() == GOLDEN_STATES
    assert uniform_bits(state[:, None], TOKENS).tolist() == GOLDEN_BITS


def test_torch_and_numpy_give_the_same_bits() -> None:
    dice = np.random.default_rng(0)
    contexts, tokens = dice.integers(0, 2**40, 500), dice.integers(0, 2**20, 300)
    theirs = uniform_bits(states(KEY, torch.from_numpy(contexts))[:, None], torch.from_numpy(tokens))
    ours = uniform_bits(states(KEY, contexts)[:, None], tokens)
    assert np.array_equal(theirs.numpy(), ours)
    assert 0 <= ours.min() <= ours.max() < 2**BITS


def test_baselines_and_keys_have_hash_keys_of_their_own() -> None:
    hash_keys = {
        (part.first, part.second)
        for name in ("a", "b")
        for part in (HashKey.of(known_key(name), domain) for domain in ("kgw", "unigram", "gloaguen/order"))
    }
    assert len(hash_keys) == 6
    assert str(KEY.first) not in repr(KEY)


@pytest.mark.parametrize("axis", ["tokens of one context", "contexts of one token", "both in step"])
def test_green_is_as_likely_as_gamma_wherever_one_looks(axis: str) -> None:
    """Fails with chance 1e-7 for a fair coin."""
    every = np.arange(200_000)
    contexts, tokens = {
        "tokens of one context": (every * 0 + 7, every),
        "contexts of one token": (every, every * 0 + 7),
        "both in step": (every, every),
    }[axis]
    green = uniform_bits(states(KEY, contexts), tokens) < threshold(0.25)
    assert stats.binomtest(int(green.sum()), len(every), 0.25).pvalue > 1e-7
    # neighbours agree no more often than coins do
    agree = green[1:] == green[:-1]
    assert stats.binomtest(int(agree.sum()), len(agree), 0.25**2 + 0.75**2).pvalue > 1e-7
