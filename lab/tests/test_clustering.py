"""The thief who clusters: texts of one sub-key are found to be so, and texts that share none are not."""

import numpy as np
import pytest

from dgmark_lab.attacks.clustering import Thief, leanings
from dgmark_lab.attacks.simulation import simulate_responses
from dgmark_lab.attacks.stealing import recovered_mass, steal
from support.known_keys import known_key

SIZE = 8192
# a law like that of words: the n-th most frequent of 2,000 has share 1 / n
LAW = np.zeros(SIZE)
LAW[np.random.default_rng(5).permutation(np.arange(4, SIZE))[:2000]] = 1 / np.arange(1, 2001)
LAW /= LAW.sum()
KEY = known_key("clusters", subkeys=8)


def responses(texts: int, match: float = 0.94, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return simulate_responses(KEY, LAW, texts, 200, match, np.random.default_rng(seed))


def test_simulated_responses_match_their_own_sub_key() -> None:
    ids, numbers = responses(400, 0.8)
    places = np.arange(200)
    own, other = (
        np.mean(
            [KEY.subkey(int(n + more) % 8).tables.matching(text, places) for text, n in zip(ids, numbers, strict=True)]
        )
        for more in (0, 1)
    )
    assert abs(own - 0.8) < 5 * np.sqrt(0.16 / ids.size)  # false-alarm rate 6e-7
    assert abs(other - 0.5) < 0.05  # a few frequent tokens weigh much
    assert np.bincount(numbers, minlength=8).min() > 400 / 8 - 5 * np.sqrt(400 * 7 / 64)


def test_responses_of_a_key_without_sub_keys_share_their_groups() -> None:
    key = known_key("clusters of one")
    ids, numbers = simulate_responses(key, LAW, 50, 200, 0.9, np.random.default_rng(1))
    assert not numbers.any()
    share = np.mean([key.tables.matching(text, np.arange(200)) for text in ids])
    assert abs(share - 0.9) < 5 * np.sqrt(0.09 / ids.size)


def test_a_leaning_is_the_even_places_less_the_odd_ones() -> None:
    assert leanings([np.array([5, 6, 5, 5, 5]), np.array([6])], 8).tolist() == [
        [0, 0, 0, 0, 0, 2, -1, 0],
        [0, 0, 0, 0, 0, 0, 1, 0],
    ]


def test_the_score_of_a_pair_is_its_likelihood_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a sum over both groups of each shared token."""
    monkeypatch.setattr("dgmark_lab.attacks.clustering._SURE", 0.99999)
    ids = responses(12, 0.8)[0][:, :50]
    leaning = leanings(list(ids), SIZE)
    thief = Thief(leaning, 8, match=0.8)
    scores, exact = thief.pair_scores(leaning[:4], leaning[4:]), np.zeros((4, 8))
    for one in range(4):
        for other in range(8):
            both = [
                0.8 ** (s * leaning[[one, 4 + other]] / 2) * 0.2 ** (-s * leaning[[one, 4 + other]] / 2)
                for s in (1, -1)
            ]
            together = (both[0].prod(axis=0) + both[1].prod(axis=0)) / 2
            apart = ((both[0] + both[1]) / 2).prod(axis=0)
            exact[one, other] = np.log(together / apart).sum()
            assert thief._evidence(leaning[one], leaning[4 + other]) == pytest.approx(exact[one, other], rel=1e-2)
    # the quick score of all pairs errs where a frequent token contradicts, which speaks against the pair either way
    assert np.abs(scores - exact)[exact > -2].max() < 0.5
    assert scores[exact < -2].max() < -1


def test_texts_are_grouped_by_sub_key_and_their_groups_are_learnt() -> None:
    ids, numbers = responses(80)
    thief = Thief(leanings(list(ids), SIZE), 8)
    same, found = numbers[:, None] == numbers, thief.labels[:, None] == thief.labels
    apart = ~np.eye(80, dtype=bool)
    assert found[same & apart].mean() > 0.95
    assert found[~same].mean() < 0.01
    group = thief.groups()[0]
    (number,) = np.unique(numbers[group])
    assert len(group) == (numbers == number).sum()
    table = KEY.subkey(int(number)).tables.table()[None]
    assert recovered_mass(steal(list(ids[group]), SIZE), table, LAW) > 0.8
    assert recovered_mass(steal(list(ids), SIZE), table, LAW) < 0.75


def test_texts_beyond_the_seeds_join_the_groups_found_among_these() -> None:
    ids, numbers = responses(120)
    thief = Thief(leanings(list(ids), SIZE), 8, seeds=60)
    same = (numbers[:, None] == numbers) & ~np.eye(120, dtype=bool)
    assert (thief.labels[:, None] == thief.labels)[same].mean() > 0.95


def test_texts_without_a_mark_form_no_groups() -> None:
    ids, _ = responses(60, 0.5)
    thief = Thief(leanings(list(ids), SIZE), 4096)
    assert len(thief.groups()) > 55


def test_another_text_is_assigned_to_its_sub_keys_group_or_to_none() -> None:
    ids, numbers = responses(80)
    thief = Thief(leanings(list(ids), SIZE), 8)
    others, theirs = responses(10, seed=3)
    for leaning, number in zip(leanings(list(others), SIZE), theirs, strict=True):
        group = thief.group_of(leaning)
        assert group is not None
        assert set(numbers[group].tolist()) == {int(number)}
    unmarked = leanings(list(responses(10, 0.5, seed=4)[0]), SIZE)
    assert sum(thief.group_of(leaning) is not None for leaning in unmarked) <= 2
