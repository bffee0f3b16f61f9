"""The alignment: its transitions, and its posterior against sums over all phase paths."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark.detection.hidden_markov import ENTER, FAR, LEAVE, MIXTURE, NEAR, OUTSIDE, HiddenMarkovModel, transitions
from dgmark.watermark.groups import GroupTables, WatermarkSpec

SHAPES = [(2, 0, 0), (3, 0, 0), (2, 0, 4), (2, 5, 0)]  # modulus, rotation, code length


def tables_of(modulus: int = 2, rotation: int = 0, code_length: int = 0, secret: bytes = b"s" * 32) -> GroupTables:
    return GroupTables(WatermarkSpec(modulus, rotation, table_size=64, code_length=code_length), secret)


def model_of(ids: list[int], tables: GroupTables, phase: str = "any") -> HiddenMarkovModel:
    return HiddenMarkovModel.of(np.array(ids, dtype=np.int64), np.arange(len(ids)), tables, phase)  # type: ignore[arg-type]


def all_groups(model: HiddenMarkovModel) -> NDArray[np.uint8]:
    """Every assignment of groups: (rows, m^rows)."""
    return np.array(list(itertools.product(range(model.modulus), repeat=len(model.distinct))), dtype=np.uint8).T


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
