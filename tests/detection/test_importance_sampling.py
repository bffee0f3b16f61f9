"""The posterior and the likelihood ratios against sums over all phase paths, the draws against all keys."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgmark.detection.hidden_markov import (
    ENTER,
    FAR,
    INTACT,
    LEAVE,
    MIXTURE,
    NEAR,
    OUTSIDE,
    HiddenMarkovModel,
    initial_states,
    transitions,
)
from dgmark.detection.importance_sampling import RETURNING, UNIFORM, DeterministicDraws, Proposal
from dgmark.watermark.groups import GroupTables, WatermarkSpec
from support.unchecked import unchecked

# modulus, rotation, code length
SHAPES = [(2, 0, 0), (3, 0, 0), (4, 0, 0), (2, 0, 4)]
REPEATING = [7, 9, 7, 12, 9, 30]


def tables_of(modulus: int = 2, rotation: int = 0, code_length: int = 0, secret: bytes = b"s" * 32) -> GroupTables:
    return GroupTables(WatermarkSpec(modulus, rotation, table_size=64, code_length=code_length), secret)


def model_of(ids: list[int], tables: GroupTables, phase: str = "any") -> HiddenMarkovModel:
    return HiddenMarkovModel.of(np.array(ids, dtype=np.int64), np.arange(len(ids)), tables, phase)  # type: ignore[arg-type]


def all_groups(model: HiddenMarkovModel) -> NDArray[np.uint8]:
    """Every assignment of groups: (rows, m^rows)."""
    return np.array(list(itertools.product(range(model.modulus), repeat=len(model.distinct))), dtype=np.uint8).T


def numbers(name: str = "test") -> DeterministicDraws:
    return DeterministicDraws(name, np.arange(3), np.arange(3))


# --- the posterior -------------------------------------------------------------------------------


def weighted_paths(model: HiddenMarkovModel, groups: NDArray[np.uint8]) -> Iterator[tuple[int, tuple[int, ...], float]]:
    """Every path of states in turn, the state outside the mark included, with its share of the likelihood ratio."""
    states, m = model.states, model.modulus
    for part, (strength, rate) in enumerate(MIXTURE):
        match = (1 + (m - 1) * strength) / m
        mixed = part == len(MIXTURE) - 1
        leave, enter, outside = (LEAVE, ENTER, OUTSIDE) if mixed else (0.0, 0.0, 0.0)
        chance = np.full((states + 1, states + 1), rate * FAR / states)
        for s in range(states):
            chance[s, s] += 1 - rate
            chance[s, (s + 1) % states] += rate * NEAR / 2
            chance[s, (s - 1) % states] += rate * NEAR / 2
        chance[:-1] *= 1 - leave
        chance[:-1, -1], chance[-1, :-1], chance[-1, -1] = leave, enter / states, 1 - enter
        first = np.append(model.first * (1 - outside), outside)
        for path in itertools.product(range(states + mixed), repeat=len(model.items)):
            weight = first[path[0]] * np.prod([chance[a, b] for a, b in itertools.pairwise(path)])
            for i, s in enumerate(path):
                if s < states:
                    row = model.items[i, s if model.items.shape[1] > 1 else 0]
                    weight *= m * match if groups[row] == model.wanted[i, s] else m * (1 - match) / (m - 1)
            yield part, path, float(weight) / len(MIXTURE)


def test_the_transitions_are_probabilities() -> None:
    assert transitions(5).sum(axis=2) == pytest.approx(np.ones((len(MIXTURE), 6)))


@pytest.mark.parametrize("modulus", [2, 3])
def test_the_posterior_is_that_of_all_paths(modulus: int) -> None:
    tables = tables_of(modulus)
    model = model_of([7, 9, 7, 12], tables)
    groups = model.groups(tables)
    found_jumps, found_inside = model.posterior(groups)
    total = 0.0
    mixed = np.zeros((4, modulus + 1))
    jumps = np.zeros(4)
    for part, path, weight in weighted_paths(model, groups):
        total += weight
        mixed[np.arange(4), path] += weight * (part == len(MIXTURE) - 1)
        jumps[1:] += weight * (np.diff(path) != 0)
    assert found_jumps == pytest.approx(jumps / total, rel=1e-9)
    assert found_inside == pytest.approx(1 - mixed[:, -1] / mixed.sum(axis=1), rel=1e-9)


def test_a_deletion_shows_where_it_was_made() -> None:
    tables = tables_of(secret=b"c" * 32)
    table = tables.table()
    words = np.random.default_rng(3).permutation(np.arange(4, 64))
    by_group = [[w for w in words if table[w] == g] for g in (0, 1)]
    ids = [int(by_group[(i + (i >= 20)) % 2][i // 2]) for i in range(40)]  # one token is missing before the 20th
    model = model_of(ids, tables)
    jumps, _ = model.posterior(model.groups(tables))
    assert abs(int(jumps.argmax()) - 20) <= 1
    assert jumps.sum() == pytest.approx(1, abs=0.5)


# --- the slow obvious way ------------------------------------------------------------------------


def likelihoods(model: HiddenMarkovModel, groups: NDArray[np.uint8], part: int) -> list[float]:
    """The sum over all paths of the ratios of the first 0, 1, ... tokens, in one part of the mixture."""
    strength, _ = MIXTURE[part]
    moves, first = transitions(model.states)[part], initial_states(model.first)[part]
    totals = [1.0]
    for seen in range(1, len(model.items) + 1):
        total = 0.0
        states = model.states + (part == len(MIXTURE) - 1)
        for path in itertools.product(range(states), repeat=seen):
            weight = first[path[0]] * np.prod([moves[a, b] for a, b in itertools.pairwise(path)])
            for i, s in enumerate(path):
                if s < model.states and weight:
                    match = groups[model.items[i, 0]] == model.wanted[i, s]
                    weight *= 1 + (model.modulus - 1) * strength if match else 1 - strength
            total += float(weight)
        totals.append(total)
    return totals


def intact_ratio(model: HiddenMarkovModel, groups: NDArray[np.uint8]) -> float:
    """The likelihood ratio of a text that nobody edited, in which each token's group is drawn once."""
    total = 0.0
    for strength in INTACT:
        for state, share in enumerate(model.first):
            ratio = 1.0
            for row in range(len(model.distinct)):
                at = np.flatnonzero(model.items[:, 0] == row)
                odds = [
                    np.prod(
                        [
                            1 + (model.modulus - 1) * strength if model.wanted[i, state] == g else 1 - strength
                            for i in at
                        ]
                    )
                    for g in range(model.modulus)
                ]
                ratio *= odds[groups[row]] / np.mean(odds)
            total += share * ratio / len(INTACT)
    return total


@pytest.mark.parametrize("phase", ["any", "start"])
@pytest.mark.parametrize(("modulus", "rotation", "code_length"), SHAPES)
def test_the_likelihood_ratios_and_the_statistic_are_those_of_all_paths(
    modulus: int, rotation: int, code_length: int, phase: str
) -> None:
    ids = REPEATING if modulus == 2 and not code_length else REPEATING[:4]
    model = model_of(ids, tables_of(modulus, rotation, code_length), phase)
    groups = all_groups(model)[:, ::5]
    proposal = Proposal(model)
    on_intact, on_edited = proposal.shares
    ratios, statistics = [], []
    for key in groups.T:
        ratio = statistic = on_intact * intact_ratio(model, key)
        for part in range(len(MIXTURE)):
            steps = np.divide(*(np.array(likelihoods(model, key, part))[s] for s in (slice(1, None), slice(None, -1))))
            new = np.array([model.items[i, 0] not in model.items[:i, 0] for i in range(len(ids))])
            share = on_edited / len(MIXTURE)
            ratio += share * np.prod(steps[new])
            statistic += share * np.prod(steps[new]) * np.prod(steps[~new]) ** RETURNING
        ratios.append(ratio)
        statistics.append(np.log(statistic))
    sample = proposal.sample(groups)
    assert 1 / sample.weights - UNIFORM == pytest.approx(ratios, rel=1e-4)
    assert sample.statistics == pytest.approx(statistics, abs=1e-4)


@pytest.mark.parametrize("length", [1, 8, 9, 300])
@pytest.mark.parametrize("phase", ["any", "start"])
def test_two_phases_are_read_as_any_number_is(length: int, phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(length)
    model = model_of(rng.integers(4, 64, length).tolist(), tables_of(), phase)
    keys = rng.integers(0, 2, (len(model.distinct), 20), dtype=np.uint8)
    quick = Proposal(model).sample(keys, 50, numbers())
    monkeypatch.setattr(HiddenMarkovModel, "mirrored", False)
    slow = Proposal(model).sample(keys, 50, numbers())
    assert (quick.groups == slow.groups).mean() > 0.999  # rounding may turn a draw
    same = (quick.groups == slow.groups).all(axis=0)
    assert quick.statistics[same] == pytest.approx(slow.statistics[same], abs=1e-3)
    assert np.log(quick.weights[same]) == pytest.approx(np.log(slow.weights[same]), abs=1e-3)


@pytest.mark.parametrize("matching", [0, 1])
def test_a_long_text_that_matches_throughout_stays_in_single_precision(matching: int) -> None:
    tables = GroupTables(WatermarkSpec(table_size=8192), b"s" * 32)
    model = HiddenMarkovModel.of(np.arange(4096), np.arange(4096), tables)
    key = (model.wanted[np.argsort(model.items[:, 0]), 0] ^ (1 - matching))[:, None]
    sample = Proposal(model).sample(np.concatenate([key, 1 - key], axis=1), 10, numbers())
    assert np.isfinite(sample.statistics).all()
    assert (sample.weights[:2] < 1e-290).all()  # the phase is unknown, so a text without a match is marked as well


# --- the weights ---------------------------------------------------------------------------------


def mean_ratio(model: HiddenMarkovModel, *, intact: bool) -> float:
    return float((1 / Proposal(model, intact).sample(all_groups(model)).weights).mean())


@settings(max_examples=15)
@given(
    ids=st.lists(st.integers(4, 9), min_size=1, max_size=24),
    phase=st.sampled_from(["any", "start"]),
    shape=st.sampled_from(SHAPES[:2] + SHAPES[3:]),
    intact=st.booleans(),
)
def test_the_likelihood_ratios_have_mean_one_over_all_keys(
    ids: list[int], phase: str, shape: tuple[int, int, int], intact: bool
) -> None:
    with unchecked():
        assert mean_ratio(model_of(ids, tables_of(*shape), phase), intact=intact) == pytest.approx(1, rel=1e-6)


def test_with_rotation_the_likelihood_ratios_have_mean_one_over_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reach of two tokens keeps the rows few enough to enumerate: tokens meet rows old, new, and of two segments."""
    monkeypatch.setattr("dgmark.detection.hidden_markov.REACH", 2)
    model = model_of([5, 6, 5, 7, 5], tables_of(2, 3))
    assert len(model.distinct) == 7
    assert mean_ratio(model, intact=True) == pytest.approx(1, rel=1e-6)
    assert mean_ratio(model, intact=False) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("intact", [True, False])
@pytest.mark.parametrize(
    ("ids", "shape"),
    [(REPEATING, (2, 0, 0)), (REPEATING[:5], (3, 0, 0)), ([5, 6, 5, 7], (4, 0, 0)), ([5, 6, 5], (2, 3, 0))],
)
def test_keys_are_drawn_with_the_chance_that_their_weight_says(
    ids: list[int], shape: tuple[int, int, int], intact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 draws. Pearson's chi-square of all keys stays below its 1 - 1e-6 quantile."""
    from scipy import stats

    monkeypatch.setattr("dgmark.detection.hidden_markov.REACH", 2)
    model = model_of(ids, tables_of(*shape))
    every = all_groups(model)
    proposal, draws = Proposal(model, intact), 100_000
    with unchecked():
        expected = draws / proposal.sample(every).weights / every.shape[1]
        drawn = proposal.sample(every[:, :0], draws, numbers())
    codes = model.modulus ** np.arange(len(every))[::-1]
    counts = np.bincount(codes @ drawn.groups.astype(int), minlength=every.shape[1])
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < stats.chi2.isf(1e-6, every.shape[1] - 1)
    assert drawn.weights.max() <= 1 / UNIFORM
    assert drawn.weights.mean() == pytest.approx(1, abs=5 * drawn.weights.std() / np.sqrt(draws))


def test_the_keys_given_do_not_change_those_drawn() -> None:
    rng = np.random.default_rng(0)
    model = model_of(rng.integers(4, 64, 100).tolist(), tables_of(3))
    few, many = (rng.integers(0, 3, (len(model.distinct), keys), dtype=np.uint8) for keys in (1, 5))
    one, other = Proposal(model).sample(few, 40, numbers()), Proposal(model).sample(many, 40, numbers())
    assert (one.groups[:, 1:] == other.groups[:, 5:]).all()
    assert (one.weights[1:] == other.weights[5:]).all()


def test_a_loop_wins_no_more_than_its_few_coins() -> None:
    model = model_of([4, 5] * 100, tables_of())
    assert (1 / Proposal(model).sample(all_groups(model)).weights).max() <= 4


# --- the draws -----------------------------------------------------------------------------------

IDS = np.arange(50, dtype=np.int64)


@pytest.mark.parametrize("modulus", [2, 3, 16])
def test_the_groups_drawn_are_uniform_and_independent_of_the_batch_before(modulus: int) -> None:
    draws = DeterministicDraws("uniform", IDS, IDS)
    first, second = (draws.groups(100, 400, modulus) for _ in range(2))
    for groups in (first, second):
        counts = np.bincount(groups.ravel(), minlength=modulus)
        assert abs(counts - 40_000 / modulus).max() < 5 * np.sqrt(40_000 / modulus)
    assert abs((first == second).mean() - 1 / modulus) < 5 * np.sqrt(1 / modulus / 40_000)


def test_each_text_and_secret_has_its_own_draws() -> None:
    def drawn(secret: bytes | None, ids: NDArray[np.int64], positions: NDArray[np.int64]) -> bytes:
        return DeterministicDraws("test", ids, positions, secret).groups(64, 4, 2).tobytes()

    assert drawn(b"a", IDS, IDS) == drawn(b"a", IDS, IDS)
    different = {drawn(b"a", IDS, IDS), drawn(b"b", IDS, IDS), drawn(b"a", IDS + 1, IDS), drawn(b"a", IDS, IDS + 1)}
    assert len(different | {drawn(None, IDS, IDS)}) == 5


def test_the_draws_are_those_of_every_version() -> None:
    """A golden vector: the same text and key give the same p-value in ten years."""
    assert DeterministicDraws("redraw/v1", IDS, IDS, b"golden").groups(16, 4, 2).ravel().tolist() == GOLDEN_TWO
    assert DeterministicDraws("redraw/v1", IDS, IDS, b"golden").groups(4, 4, 5).ravel().tolist() == GOLDEN_FIVE
    assert (DeterministicDraws("golden", IDS, IDS).uniform(5) * 2**24).astype(int).tolist() == GOLDEN_UNIFORM


def test_two_purposes_have_two_streams() -> None:
    first, second = (DeterministicDraws(purpose, IDS, IDS).uniform(1000) for purpose in ("one", "two"))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(1000)


def test_the_numbers_lie_in_the_unit_interval_uniformly() -> None:
    """100,000 numbers; the shares of ten bins are within 5 standard errors."""
    numbers = DeterministicDraws("bins", IDS, IDS).uniform(200, 500)
    assert numbers.dtype == np.float32
    assert 0 <= numbers.min() <= numbers.max() < 1
    shares = np.bincount((numbers.ravel() * 10).astype(int), minlength=10) / numbers.size
    assert abs(shares - 0.1).max() < 5 * np.sqrt(0.09 / numbers.size)


GOLDEN_TWO = [int(bit) for bit in "0100010000111100000000001110000001100110111100001110111001001100"]
GOLDEN_FIVE = [int(group) for group in "4143423442204310"]
GOLDEN_UNIFORM = [6135294, 9549882, 6523109, 11219912, 7496283]
