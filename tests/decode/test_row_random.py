"""The random numbers of a row: each bit of a seed counts, and those of small seeds are torch's."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgmark
from dgmark.decode.row_random import check_seed, random_of
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from support.word_model import WordModel, text_of

SEEDS = st.integers(-(2**63), 2**64 - 1)


@given(st.integers(0, 2**32 - 1))
def test_a_seed_of_32_bits_has_the_numbers_of_torch(seed: int) -> None:
    generator, stream = torch.Generator().manual_seed(seed), random_of(seed)
    assert torch.equal(stream.uniforms(2, 3), torch.rand(2, 3, generator=generator, dtype=torch.float64))
    own = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
    assert torch.equal(random_of(stream.seed()).uniforms(4), torch.rand(4, generator=own, dtype=torch.float64))


@given(st.integers(0, 2**64 - 1), st.integers(0, 63))
def test_each_bit_of_a_seed_counts(seed: int, bit: int) -> None:
    other = seed ^ (1 << bit)
    streams = [random_of(one) for one in (seed, other)]
    first, second = (stream.uniforms(4) for stream in streams)
    assert not (first == second).any()
    assert streams[0].seed() != streams[1].seed()


@given(SEEDS)
def test_a_seed_gives_its_numbers_again(seed: int) -> None:
    one, same = random_of(seed), random_of(seed)
    assert torch.equal(torch.stack([one.uniforms(3), one.uniforms(3)]).flatten(), same.uniforms(6))
    assert one.seed() == same.seed()


def test_the_numbers_of_large_seeds_never_change() -> None:
    """They are part of what a seed promises: that it gives the same text again."""
    found = {seed: (random_of(seed).uniforms(2).tolist(), random_of(seed).seed()) for seed in (2**32, 2**64 - 1, -1)}
    assert found == {
        2**32: ([0.7022123390605324, 0.9897807029379433], 12953531304050599265),
        2**64 - 1: ([0.5172949330481225, 0.7577416624356703], 9542407240565433948),
        -1: ([0.352321548349128, 0.14709775958859717], 6499185434049450377),
    }


@pytest.mark.parametrize("seed", [7, 2**40])
def test_numbers_are_uniform(seed: int) -> None:
    """Each tenth of 100,000 numbers is a binomial with a standard deviation of 95; 6 of them are passed 1 in 10^8."""
    numbers = random_of(seed).uniforms(1000, 100)
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    counts = torch.histc(numbers, 10, 0, 1)
    assert (counts - 10_000).abs().max() < 6 * 95


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, True, 1.0, "1"], ids=str)
def test_what_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(SettingsError, match="is not a whole number from"):
        check_seed(seed)


@pytest.mark.parametrize("noise", ["redrawn", "fixed"])
def test_seeds_that_differ_above_bit_31_write_different_texts(noise: str) -> None:
    seeds = [5, 5 + 2**32, 5 + 2**40, 5 + 2**63, -1, 2**32 - 1, 2**64 - 1]
    settings: dict[str, Any] = {"length": 16, "block_length": 8, "noise": noise}
    texts = [dgmark.generate(ToyDenoiser(), "w1 w2", key=None, seed=seed, **settings)[0].text for seed in seeds]
    assert len(set(texts)) == len(seeds)


def test_so_they_do_where_holes_are_chosen() -> None:
    model, text = WordModel(words=676), text_of(60)
    made = {seed: dgmark.infill(model, [text], key=None, share=0.5, seed=seed)[0].text for seed in (5, 5 + 2**32, -1)}
    assert len(set(made.values())) == 3
