"""The random numbers of draws: uniform, independent of their neighbours, and the same for ever."""

from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import dgmark
from dgmark.decode.steps.draws import Draws, check_seed, seeds_within, uniform_draws
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from support.plain_decoding import uniform
from support.word_model import WordModel, text_of

SEEDS = st.integers(-(2**63), 2**64 - 1)
ROW = torch.tensor([0])
FALSE_ALARM = 1e-7  # of one statistical test; this file has fewer than 200


def numbers_of(seed: int, forwards: int = 1, width: int = 4) -> Tensor:
    """The numbers of the first forwards of a seed: (forwards, width, 2)."""
    draws = Draws([seed], torch.arange(width))
    return torch.cat([draws.uniforms(ROW, 0, width) for _ in range(forwards)])


# --- seeds ---


@given(st.integers(0, 2**64 - 1), st.integers(0, 63))
def test_each_bit_of_a_seed_counts(seed: int, bit: int) -> None:
    other = seed ^ (1 << bit)
    assert not (numbers_of(seed) == numbers_of(other)).any()
    assert not set(islice(seeds_within(seed), 3)) & set(islice(seeds_within(other), 3))


@given(st.integers(-(2**63), -1))
def test_a_negative_seed_is_not_the_large_one_of_the_same_bits(seed: int) -> None:
    assert not (numbers_of(seed) == numbers_of(seed + 2**64)).any()


@given(SEEDS)
def test_a_seed_gives_its_numbers_again(seed: int) -> None:
    assert torch.equal(numbers_of(seed, 2), numbers_of(seed, 2))
    assert list(islice(seeds_within(seed), 3)) == list(islice(seeds_within(seed), 3))
    assert len({check_seed(one) for one in islice(seeds_within(seed), 9)}) == 9


def test_the_numbers_of_a_seed_never_change() -> None:
    """They are part of what a seed promises: that it gives the same text again."""
    found = {seed: (numbers_of(seed, 1, 1).flatten().tolist(), next(seeds_within(seed))) for seed in (0, 2**64 - 1, -1)}
    assert found == {
        0: ([0.6044118051272669, 0.5103517646753791], 9623825090288838735),
        2**64 - 1: ([0.11246652271672675, 0.01764126814122491], 16952335930302540941),
        -1: ([0.496527324610088, 0.5144087885072005], 2116608224245161237),
    }


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


# --- places, forwards and rows ---


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=8))
def test_each_canvas_of_a_row_has_the_numbers_of_the_next_forward(seeds: list[int], owners: list[int]) -> None:
    """Whatever the other rows do, and by the definition of the numbers in whole numbers."""
    positions = torch.tensor([3, -2, 8, 5, 6])
    draws, forwards = Draws(seeds, positions, max(1, len(owners))), [0] * len(seeds)
    for low, width in ((1, 4), (0, 2), (1, 4)):
        rows = sorted(owner % len(seeds) for owner in owners)
        found = draws.uniforms(torch.tensor(rows, dtype=torch.long), low, width)
        assert found.shape == (len(rows), width, 2)
        for row, numbers in zip(rows, found, strict=True):
            places = positions[low : low + width].tolist()
            expected = [
                [uniform(seeds[row], forwards[row], 2 * place + number) for number in range(2)] for place in places
            ]
            assert numbers.tolist() == expected
            forwards[row] += 1


def test_kept_noise_depends_on_row_position_and_token_alone() -> None:
    draws = Draws([1, 2], torch.arange(6), 2)
    whole = draws.gumbel(torch.tensor(1), 0, 6, 50)
    draws.uniforms(torch.tensor([0, 1, 1]), 0, 6)
    assert torch.equal(draws.gumbel(torch.tensor(1), 2, 3, 50), whole[2:5])
    assert len(set(torch.cat([whole, draws.gumbel(torch.tensor(0), 0, 6, 50)]).flatten().tolist())) > 590


# --- the distribution ---


def grid(seeds: int, steps: int, width: int) -> Tensor:
    """The numbers of neighbouring seeds, forwards and positions: (seeds, steps, width, 2)."""
    every = torch.cartesian_prod(torch.arange(seeds), torch.arange(steps))
    positions = torch.arange(width).expand(len(every), -1)
    return uniform_draws(every[:, 0], every[:, 1], positions).view(seeds, steps, width, 2)


# each has 2^18 numbers: of many seeds, of many forwards, of many positions
GRIDS = {"seeds": (2**13, 4, 4), "steps": (4, 2**13, 4), "positions": (4, 4, 2**13), "all": (64, 64, 32)}


def p_of_chi_square(counts: Tensor) -> float:
    """Of counts that should be equal."""
    return float(stats.chisquare(counts.flatten().numpy()).pvalue)


@pytest.mark.parametrize("shape", GRIDS)
def test_numbers_are_uniform(shape: str) -> None:
    numbers = grid(*GRIDS[shape]).flatten()
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    assert p_of_chi_square(torch.bincount((numbers * 1024).long(), minlength=1024)) > FALSE_ALARM
    # the digits after the tenth bit
    assert p_of_chi_square(torch.bincount((numbers * 2**20).long() % 1024, minlength=1024)) > FALSE_ALARM


@pytest.mark.parametrize("lag", [1, 2, 3, 64])
@pytest.mark.parametrize("axis", range(4), ids=["seeds", "steps", "positions", "both numbers of a place"])
@pytest.mark.parametrize("shape", GRIDS)
def test_numbers_are_independent_of_their_neighbours(shape: str, axis: int, lag: int) -> None:
    """Cells of 32 by 32 for a number and the one beside it along an axis."""
    numbers = (grid(*GRIDS[shape]) * 32).long()
    if numbers.shape[axis] <= lag:
        return
    before, after = (
        numbers.narrow(axis, 0, numbers.shape[axis] - lag),
        numbers.narrow(axis, lag, numbers.shape[axis] - lag),
    )
    assert p_of_chi_square(torch.bincount((32 * before + after).flatten(), minlength=1024)) > FALSE_ALARM


def test_no_seed_step_and_position_give_the_number_of_others() -> None:
    """2^15 numbers of 53 bits: two are equal by chance once in 2^24 sets."""
    assert len(set(grid(32, 32, 16).flatten().tolist())) == 2**15


@pytest.mark.parametrize("axis", range(3), ids=["seed", "step", "position"])
def test_each_bit_of_what_decides_a_number_changes_half_of_its_bits(axis: int) -> None:
    """Each of 53 bits in 2,048 draws is a binomial, of which the worst of 64 * 53 is held to the rate."""
    generator = torch.Generator().manual_seed(axis)
    given = [torch.randint(-(2**62), 2**62, (2048,), generator=generator) for _ in range(3)]
    plain = bits_of(given)
    cut = stats.binom.isf(FALSE_ALARM / (64 * 53), 2048, 0.5)
    for bit in range(63 if axis == 2 else 64):  # a position is doubled
        changed = list(given)
        changed[axis] = given[axis] ^ torch.tensor(1 << bit if bit < 63 else -(2**63))
        flipped = (bits_of(changed) != plain).sum(0)
        assert flipped.max() <= cut, (bit, flipped.max())
        assert flipped.min() >= 2048 - cut, (bit, flipped.min())


def bits_of(given: list[Tensor]) -> Tensor:
    """The bits of the first number of each draw: (draws, 53)."""
    numbers = uniform_draws(given[0], given[1], given[2][:, None])[:, 0, 0]
    return (numbers * 2**53).long()[:, None] >> torch.arange(53) & 1


def test_kept_noise_is_gumbel() -> None:
    """By the distribution of 120,000 numbers, of neighbouring rows, positions and tokens."""
    draws = Draws(range(6), torch.arange(20))
    noise = torch.stack([draws.gumbel(torch.tensor(row), 0, 20, 1000) for row in range(6)])
    assert stats.kstest(noise.flatten().numpy(), stats.gumbel_r.cdf).pvalue > FALSE_ALARM
    numbers = (torch.exp(-torch.exp(-noise.double())) * 32).long().clamp(max=31)
    for axis in range(3):
        size = numbers.shape[axis] - 1
        pairs = 32 * numbers.narrow(axis, 0, size) + numbers.narrow(axis, 1, size)
        assert p_of_chi_square(torch.bincount(pairs.flatten(), minlength=1024)) > FALSE_ALARM
