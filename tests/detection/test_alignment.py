"""The alignment statistic against sums over all phase paths, and its e-value against enumeration of all keys."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgmark.detection.alignment import Alignment
from dgmark.detection.evalue import log_e_value
from dgmark.detection.hidden_phase import ENTER, FAR, LEAVE, MIXTURE, NEAR, OUTSIDE, transitions
from dgmark.watermark.groups import GroupTables, WatermarkSpec
from support.unchecked import unchecked

SHAPES = [(2, 0, 0), (3, 0, 0), (2, 0, 4), (2, 5, 0)]  # modulus, rotation, code length


def tables_of(modulus: int = 2, rotation: int = 0, code_length: int = 0, secret: bytes = b"s" * 32) -> GroupTables:
    return GroupTables(WatermarkSpec(modulus, rotation, table_size=64, code_length=code_length), secret)


def model_of(ids: list[int], tables: GroupTables, phase: str = "any") -> Alignment:
    return Alignment.of(np.array(ids, dtype=np.int64), np.arange(len(ids)), tables, phase)  # type: ignore[arg-type]


def all_groups(model: Alignment) -> NDArray[np.uint8]:
    """Every assignment of groups: (rows, m^rows)."""
    return np.array(list(itertools.product(range(model.modulus), repeat=len(model.distinct))), dtype=np.uint8).T


def weighted_paths(model: Alignment, groups: NDArray[np.uint8]) -> Iterator[tuple[int, tuple[int, ...], float]]:
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


def paths_ratio(model: Alignment, groups: NDArray[np.uint8]) -> float:
    """The likelihood ratio from its definition."""
    return sum(weight for _, _, weight in weighted_paths(model, groups))


@pytest.mark.parametrize("phase", ["any", "start"])
@pytest.mark.parametrize(("modulus", "code_length"), [(2, 0), (3, 0), (2, 4)])
def test_the_forward_algorithm_sums_over_all_paths(modulus: int, code_length: int, phase: str) -> None:
    ids = [7, 9, 7, 12, 9, 30] if modulus == 2 and not code_length else [7, 9, 7, 12, 9]
    model = model_of(ids, tables_of(modulus, code_length=code_length), phase)
    groups = all_groups(model)[:, ::5]
    found = model.log_ratios(groups)
    assert found == pytest.approx(np.log([paths_ratio(model, groups[:, k]) for k in range(groups.shape[1])]), rel=1e-9)


@pytest.mark.parametrize("phase", ["any", "start"])
@pytest.mark.parametrize("length", [0, 1, 5, 11, 12, 13, 24, 25, 36, 700])
@pytest.mark.parametrize(("modulus", "rotation", "code_length"), SHAPES)
def test_single_precision_ranks_as_double_does(
    modulus: int, rotation: int, code_length: int, length: int, phase: str
) -> None:
    rng = np.random.default_rng(length)
    model = model_of(rng.integers(4, 64, length).tolist(), tables_of(modulus, rotation, code_length), phase)
    groups = rng.integers(0, modulus, (len(model.distinct), 50), dtype=np.uint8)
    assert model.log_ratios(groups, np.float32) == pytest.approx(model.log_ratios(groups), abs=1e-4)


def test_two_phases_in_single_precision_survive_a_text_that_matches_everywhere_or_nowhere() -> None:
    model = model_of([5] * 4096, GroupTables(WatermarkSpec(table_size=64), b"s" * 32))
    gapped = Alignment.of(np.arange(1000) % 64, np.arange(1000) * 2, tables_of())
    for one in (model, gapped):
        for groups in (np.zeros((len(one.distinct), 1), np.uint8), np.ones((len(one.distinct), 1), np.uint8)):
            assert one.log_ratios(groups, np.float32) == pytest.approx(one.log_ratios(groups), abs=1e-4)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_text_of_few_tokens_has_a_ratio_near_one(length: int) -> None:
    model = model_of([5, 6][:length], tables_of())
    assert abs(model.log_ratios(all_groups(model))).max(initial=0.0) < np.log(2)


def test_the_transitions_are_probabilities() -> None:
    assert transitions(5).sum(axis=2) == pytest.approx(np.ones((len(MIXTURE), 6)))


@pytest.mark.parametrize("modulus", [2, 3])
def test_the_posterior_is_that_of_all_paths(modulus: int) -> None:
    tables = tables_of(modulus)
    model = model_of([7, 9, 7, 12], tables)
    groups = model.groups(tables)
    posterior = model.posterior(groups)
    states = np.zeros((4, modulus + 1))
    mixed = np.zeros((4, modulus + 1))
    jumps = np.zeros(4)
    for part, path, weight in weighted_paths(model, groups):
        states[np.arange(4), path] += weight
        mixed[np.arange(4), path] += weight * (part == len(MIXTURE) - 1)
        jumps[1:] += weight * (np.diff(path) != 0)
    total = states[0].sum()
    assert posterior.states == pytest.approx(states[:, :-1] / total, rel=1e-9)
    assert posterior.jumps == pytest.approx(jumps / total, rel=1e-9)
    assert posterior.mixed == pytest.approx(1 - mixed[:, -1] / mixed.sum(axis=1), rel=1e-9)


def test_a_deletion_shows_where_it_was_made() -> None:
    tables = tables_of(secret=b"c" * 32)
    table = tables.table()
    words = np.random.default_rng(3).permutation(np.arange(4, 64))
    by_group = [[w for w in words if table[w] == g] for g in (0, 1)]
    ids = [int(by_group[(i + (i >= 20)) % 2][i // 2]) for i in range(40)]  # one token is missing before the 20th
    model = model_of(ids, tables)
    posterior = model.posterior(model.groups(tables))
    assert abs(int(posterior.jumps.argmax()) - 20) <= 1
    assert posterior.jumps.sum() == pytest.approx(1, abs=0.5)
    assert posterior.states[5, 0] > 0.9
    assert posterior.states[35, 1] > 0.9


# --- the e-value ---------------------------------------------------------------------------------


def mean_winnings(model: Alignment) -> float:
    groups = all_groups(model)
    with unchecked():
        return float(np.exp([log_e_value(model, groups[:, k]) for k in range(groups.shape[1])]).mean())


@pytest.mark.parametrize(("modulus", "rotation", "code_length"), SHAPES)
def test_the_winnings_have_mean_one_over_all_keys_on_a_text_that_repeats_itself(
    modulus: int, rotation: int, code_length: int
) -> None:
    tables = tables_of(modulus, rotation, code_length)
    distinct = {2: 6, 3: 4}[modulus]
    ids = (4 + np.random.default_rng(modulus).integers(0, distinct, 12)).tolist()
    if rotation:
        ids = ids[:3]
        model = model_of(ids, tables)
        rng = np.random.default_rng(1)
        some = rng.integers(0, 2, (len(model.distinct), 4000), dtype=np.uint8)
        with unchecked():
            winnings = np.exp([log_e_value(model, some[:, k]) for k in range(400)])
        assert abs(winnings.mean() - 1) < 5 * winnings.std() / 20 + 1e-9
        return
    assert mean_winnings(model_of(ids, tables)) == pytest.approx(1, rel=1e-12)


@settings(deadline=None, max_examples=12)
@given(ids=st.lists(st.integers(4, 9), min_size=1, max_size=14), phase=st.sampled_from(["any", "start"]))
def test_the_winnings_have_mean_one_on_any_short_text(ids: list[int], phase: str) -> None:
    assert mean_winnings(model_of(ids, tables_of(), phase)) == pytest.approx(1, rel=1e-12)


def test_a_loop_wins_no_more_than_its_few_coins() -> None:
    model = model_of([4, 5] * 100, tables_of())
    assert max(log_e_value(model, all_groups(model)[:, k]) for k in range(4)) <= 2 * np.log(2)


def test_the_right_key_wins_a_lot_on_text_with_cuts() -> None:
    tables = tables_of(secret=b"w" * 32)
    big = GroupTables(WatermarkSpec(table_size=4000), b"w" * 32)
    rng = np.random.default_rng(4)
    words = rng.permutation(np.arange(4, 4000))
    ids = np.array([int(words[np.flatnonzero(big.table()[words] == i % 2)[i]]) for i in range(240)])
    model = Alignment.of(cut := ids[rng.random(240) > 0.1], np.arange(len(cut)), big)
    right = log_e_value(model, model.groups(big))
    wrong = log_e_value(model, rng.integers(0, 2, len(model.distinct), dtype=np.uint8))
    assert right > 20
    assert wrong < 5
    assert tables.spec.modulus == 2
