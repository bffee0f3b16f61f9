"""The keyed bits of pairs: the reference vectors of SipHash, numpy against torch, counts against single sub-keys."""

import itertools

import numpy as np
import pytest

from dgmark import WatermarkKey
from dgmark.errors import SettingsError
from dgmark.watermark.bigram import PairHashes, hash_key, matching_pairs, pair_words, pairs_of, sums_by_subkey
from dgmark.watermark.hashes import SipHashKey, siphash
from dgmark.watermark.position import tables_of

RNG = np.random.default_rng(1)
KEY = hash_key(bytes(range(32)), 1, 4)


def test_the_hash_has_the_published_value() -> None:
    # vectors.h of the reference implementation: key 00..0f, message 00..07
    message = np.frombuffer(bytes(range(8)), dtype="<i8")
    assert siphash(message, SipHashKey.of(bytes(range(16)))).tobytes() == bytes.fromhex("6224939a79f5f593")


def test_arrays_are_hashed_as_single_words() -> None:
    for shape in (1, 1000, (3, 7000)):  # the last are more than are hashed at once
        words, keys = RNG.integers(-(2**63), 2**63, shape), RNG.integers(-(2**63), 2**63, (2, 7000))[:, -1000:]
        own = words[..., -1000:]
        each = siphash(own, (keys[0, -own.shape[-1] :], keys[1, -own.shape[-1] :]))
        assert each[..., -1:].tolist() == siphash(own[..., -1:], SipHashKey(*keys[:, -1].tolist())).tolist()
        assert siphash(words, KEY)[..., -1:].tolist() == siphash(words[..., -1:].copy(), KEY).tolist()


def test_bits_of_pairs_are_held_by_golden_values() -> None:
    left, right = np.arange(20), np.arange(20)[::-1]
    assert SipHashKey(8527659295047123245, 1039868331369461291) == KEY
    bits = "".join("01"[bit] for bit in matching_pairs(pair_words(left, right), KEY).astype(int))
    assert bits == "10000000110011101010"


@pytest.mark.parametrize(("nearest", "farthest"), [(1, 1), (1, 4), (3, 5), (0, 0), (0, 4)])
def test_pairs_are_those_of_a_plain_loop(nearest: int, farthest: int) -> None:
    positions = np.array([0, 1, 2, 4, 5, 9, 10, 12])
    n = range(len(positions))
    expected = [(i, j) for j in n for i in n if nearest <= positions[j] - positions[i] <= farthest]
    left, right = pairs_of(positions, nearest, farthest)
    assert sorted(zip(left.tolist(), right.tolist(), strict=True)) == sorted(expected)
    assert (np.diff(right) >= 0).all()


@pytest.mark.parametrize("subkeys", [1, 2, 256])
def test_counts_by_subkey_are_those_of_each_subkey(subkeys: int) -> None:
    words = pair_words(RNG.integers(0, 5000, 700), RNG.integers(0, 5000, 700))
    counts = [int(matching_pairs(words, KEY, number).sum()) for number in range(subkeys)]
    hashes = PairHashes(words, KEY)
    assert sums_by_subkey(hashes, subkeys).tolist() == [counts]
    ends = [0, 300, 300, 700]  # a part may be without pairs, or have more than a byte counts
    parts = [sums_by_subkey(PairHashes(words[begin:end], KEY), subkeys)[0] for begin, end in itertools.pairwise(ends)]
    assert np.array_equal(sums_by_subkey(hashes, subkeys, sizes=np.diff(ends)), parts)
    order = RNG.permutation(700)[:500]
    (some,) = sums_by_subkey(PairHashes(words[order], KEY), subkeys)
    assert sums_by_subkey(hashes, subkeys, order).tolist() == [some.tolist()]


@pytest.mark.parametrize("subkeys", [range(1), range(256), range(70, 71), range(300, 301), range(2**15)])
def test_hashes_of_several_texts_are_those_of_each(subkeys: range) -> None:
    texts = [RNG.integers(0, 2**48, count) for count in (300, 0, 1, 5000)]
    together, apart = ([PairHashes(words, KEY) for words in texts] for _ in range(2))
    PairHashes.compute_together(together, subkeys)
    PairHashes.compute_together([], subkeys)
    for one, other in zip(together, apart, strict=True):
        for number in (*subkeys[:: max(1, len(subkeys) // 5)], 0, 63, 64, 2**15 - 1):
            assert np.array_equal(one.matches(number), other.matches(number))
            assert np.array_equal(one.matches(number), matching_pairs(one.words, KEY, number))
        for stop in (1, 256, 300):
            assert np.array_equal(sums_by_subkey(one, stop), sums_by_subkey(other, stop))


def test_a_key_of_pairs_has_no_groups() -> None:
    with pytest.raises(SettingsError, match="is of rule bigram: take a key of rule position"):
        tables_of(WatermarkKey.generate(rule="bigram"))
