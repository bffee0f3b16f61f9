"""The alignment test and the verdict: its power, its p-value against the enumeration of all keys, and its level."""

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dgmark.detection import edit_test
from dgmark.detection.detector import Detector
from dgmark.detection.edit_test import (
    MAX_DRAWS,
    MIN_DRAWS,
    SCREEN,
    SCREEN_DRAWS,
    aligned_test,
    aligned_tokens,
    draws_of,
    window_statistic,
)
from dgmark.detection.hidden_markov import HiddenMarkovModel
from dgmark.detection.importance_sampling import TOLERANCE, DeterministicDraws, Proposal, weighted_rank
from dgmark.detection.result import Detection, Mode
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import cut, filled, marked_ids
from support.unchecked import unchecked
from support.unmarked_texts import texts

Ids = NDArray[np.int64]
FIRST = 4


def detector_of(name: str = "edited", *, mode: Mode = "auto", fpr: float = 1e-4, **spec: Any) -> Detector:
    return Detector(known_key(name, **spec), tokenizer=builtin_tokenizer(), mode=mode, fpr=fpr)


@pytest.mark.parametrize(
    "spec",
    [{}, {"modulus": 3}, {"code_length": 8}, {"code_length": 32}, {"rotation": 64}, {"modulus": 4, "rotation": 50}],
)
@pytest.mark.parametrize("edit", [cut, filled])
def test_scattered_edits_are_followed(spec: dict[str, Any], edit: Any) -> None:
    ids = edit(marked_ids(known_key("edited", **spec), 260), 0.06)
    found = detector_of(mode="edited", **spec).detect(ids)
    assert found.p_value < 1e-5
    assert 0.02 < (found.edited_fraction or 0) < 0.15
    assert detector_of(**spec).detect(ids).verdict == "watermarked"


@pytest.mark.parametrize("edit", [cut, filled])
def test_auto_finds_what_intact_does_not(edit: Any) -> None:
    missed = 0
    for seed in range(4):
        ids = edit(marked_ids(known_key("edited"), 260, seed=seed), 0.1)
        assert detector_of().detect(ids).verdict == "watermarked"
        missed += detector_of(mode="intact").detect(ids).verdict == "not_detected"
    assert missed >= 3


def test_the_p_value_of_auto_pays_for_both_tests() -> None:
    detector = detector_of()
    found = detector.detect(cut(marked_ids(detector.key, 200), 0.08))
    assert found.p_aligned is not None
    assert found.p_intact is not None
    assert found.p_value == pytest.approx(min(1.0, found.p_aligned / 0.99, found.p_intact / 0.01), rel=1e-12)
    whole = detector.detect(ids := marked_ids(detector.key, 200))
    assert whole.p_intact == detector_of(mode="intact").detect(ids).p_value
    assert whole.p_value == pytest.approx(whole.p_intact / 0.01, rel=1e-12)
    assert (whole.p_aligned, whole.draws, whole.edited_fraction) == (None, 0, None)


@pytest.mark.parametrize("ids", [marked_ids(known_key("edited"), 200), cut(marked_ids(known_key("edited"), 200), 0.1)])
def test_the_other_modes_leave_one_test_out(ids: Ids) -> None:
    edited, intact = (detector_of(mode=mode).detect(ids) for mode in ("edited", "intact"))
    assert (edited.verdict, edited.p_intact, edited.p_value) == ("watermarked", None, edited.p_aligned)
    assert (intact.p_aligned, intact.draws, intact.p_value) == (None, 0, intact.p_intact)


def test_p_values_of_edited_text_have_no_floor() -> None:
    """Strong marks with a cut in the middle, which the exact test does not follow."""
    found = []
    for length in (100, 200, 400, 800):
        ids = np.delete(marked_ids(known_key("edited"), length, rate=1.0), length // 2)
        found.append(detector_of(mode="edited").detect(ids).p_value)
    assert found[0] < 1e-15
    assert all(longer < shorter**1.5 for shorter, longer in itertools.pairwise(found))


@pytest.mark.parametrize(("spec", "length"), [({"rotation": 64}, 200), ({"code_length": 64}, 4097)])
def test_where_alignment_does_not_see_all_both_tests_are_paid_for(spec: dict[str, Any], length: int) -> None:
    detector = detector_of(**spec)
    rng = np.random.default_rng(0)
    found = detector.detect(np.concatenate([marked_ids(detector.key, 60), rng.integers(300, 8000, length - 60)]))
    assert found.p_intact is not None
    assert found.p_aligned is not None
    assert found.p_value == pytest.approx(min(1.0, found.p_aligned / 0.9, found.p_intact / 0.1), rel=1e-12)


def test_the_p_value_does_not_depend_on_the_rate() -> None:
    ids = cut(marked_ids(known_key("edited"), 120, rate=0.75), 0.08)
    found = [detector_of(fpr=fpr).detect(ids) for fpr in (0.3, 1e-2, 1e-4, 1e-9, 1e-200)]
    assert len({each.p_value for each in found}) == 1
    assert len({each.verdict for each in found}) >= 2


@pytest.mark.parametrize(
    ("mode", "fpr", "share"),
    [("intact", 1e-4, 1.0), ("auto", 1e-4, 0.99), ("edited", 1e-4, 1.0), ("auto", 1e-6, 0.99)],
)
def test_a_text_is_uncertain_if_a_typical_mark_would_be_missed(mode: Mode, fpr: float, share: float) -> None:
    detector = detector_of(mode=mode, fpr=fpr)
    for length in (0, 1, 7, *range(24, 130, 3)):
        found = detector.detect(np.arange(300, 300 + length))  # distinct ids: the null is a binomial, at two phases
        detectable = 2 * stats.binom.sf(np.ceil(0.75 * length) - 1, length, 0.5) <= share * fpr
        assert found.verdict == ("not_detected" if detectable else "uncertain"), length


def test_the_front_of_a_very_long_text_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit_test, "MAX_TOKENS", 300)
    tables = known_key("edited").tables
    ids, positions = np.random.default_rng(0).integers(300, 8000, 900), np.arange(900)
    front = HiddenMarkovModel.of(ids[:300], positions[:300], tables)
    assert edit_test.front_model(tables, ids, positions, "any").items.tolist() == front.items.tolist()


@pytest.mark.slow
def test_a_million_tokens_have_a_verdict() -> None:
    """A mark of one in a hundred tokens, in a text whose null is far too wide to convolve."""
    detector = detector_of()
    ids = np.random.default_rng(1).integers(300, 8000, 1_000_000)
    wrong = np.flatnonzero(~detector.key.tables.matching(ids, np.arange(len(ids))))[::50]
    table = detector.key.tables.table()
    some = [np.flatnonzero(table[300:8000] == parity)[:50] + 300 for parity in (0, 1)]
    ids[wrong] = [some[at % 2][at % 50] for at in wrong]
    with unchecked():
        assert detector.detect(ids).verdict == "watermarked"
        assert detector_of("another").detect(ids).verdict == "not_detected"


@pytest.mark.parametrize(
    ("length", "spec", "draws"),
    [(100, {}, MAX_DRAWS), (16_000, {}, 131), (256, {"code_length": 64}, 256), (4000, {"rotation": 40}, MIN_DRAWS)],
)
def test_longer_texts_and_more_states_draw_fewer_keys(length: int, spec: dict[str, Any], draws: int) -> None:
    ids = np.arange(300, 300 + length) % 8000
    assert draws_of(HiddenMarkovModel.of(ids, np.arange(length), known_key("budget", **spec).tables)) == draws


def test_a_loop_with_a_slip_is_not_a_mark() -> None:
    """Two lucky tokens that alternate, with a slip now and then: only two coins, however long the text."""
    loop = np.array([400, 500] * 300)
    with unchecked():
        found = [detector_of(f"loop {k}").detect(np.delete(loop, [101, 290, 401])).p_value for k in range(40)]
    assert min(found) > 0.05


# --- the p-value against the enumeration of all keys -----------------------------------------------

CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "repeats": ({}, [300, 301, 300, 302, 303, 301, 304, 300, 305, 306, 301, 307]),
    "distinct": ({}, list(range(300, 311))),
    "m = 4": ({"modulus": 4}, [300, 301, 300, 302, 303, 301]),
    "code": ({"code_length": 4}, [300, 301, 300, 302, 303, 301, 304, 305, 306]),
    "rotation": ({"rotation": 3}, [300, 301, 300, 302]),
}


def enumerated(case: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Proposal, NDArray[np.uint8], NDArray[np.float64]]:
    """The proposal of a short text, every assignment of groups, and the statistic of each."""
    monkeypatch.setattr("dgmark.detection.hidden_markov.REACH", 2)
    spec, ids = CASES[case]
    tables = known_key("enumerated", **spec).tables
    model = HiddenMarkovModel.of(np.array(ids), np.arange(len(ids)), tables)
    rows = len(model.distinct)
    every = (np.arange(model.modulus**rows) // model.modulus ** np.arange(rows)[:, None] % model.modulus).astype(
        np.uint8
    )
    proposal = Proposal(model)
    with unchecked():
        return proposal, every, proposal.sample(every).statistics


@pytest.mark.parametrize("case", CASES)
def test_the_p_value_is_the_exact_tail_within_its_error(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tail of the statistic over all keys, within 5 standard errors of the estimate, at six places of the tail."""
    proposal, every, statistics = enumerated(case, monkeypatch)
    with unchecked():
        sample = proposal.sample(every[:, :1], 40_000, DeterministicDraws("enumerated", np.arange(2), np.arange(2)))
    drawn, weights = sample.statistics[1:], sample.weights[1:]
    for place in np.quantile(statistics, [0.2, 0.5, 0.8, 0.95, 0.99, 1], method="lower"):
        exact = np.mean(statistics >= place - TOLERANCE)
        counted = weights * (drawn >= place - TOLERANCE)
        error = counted.std() / np.sqrt(len(counted))
        assert abs(counted.mean() - exact) < 5 * error + 1e-9


@pytest.mark.parametrize("draws", [1, 7, 50])
@pytest.mark.parametrize("case", ["repeats", "m = 4", "rotation"])
def test_the_p_value_is_valid_for_any_number_of_draws(case: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over every key and 300 sets of draws: P(p <= a) exceeds a by 5 standard errors at most."""
    proposal, every, statistics = enumerated(case, monkeypatch)
    own = proposal.sample(every).weights
    shares = []
    with unchecked():
        for turn in range(300):
            numbers = DeterministicDraws(f"turn {turn}", np.arange(2), np.arange(2))
            sample = proposal.sample(every[:, :0], draws, numbers)
            as_well = sample.statistics >= statistics[:, None] - TOLERANCE
            p = (own + as_well @ sample.weights) / (1 + draws)
            shares.append([np.mean(p <= alpha) for alpha in (0.5, 0.2, 0.05, 0.01, 1e-3)])
    mean, error = np.mean(shares, axis=0), np.std(shares, axis=0) / np.sqrt(len(shares))
    assert (mean <= np.array([0.5, 0.2, 0.05, 0.01, 1e-3]) + 5 * error).all()
    assert mean[0] > 0.1  # and is not always 1


def test_the_weighted_rank_is_the_formula() -> None:
    statistics, weights = np.array([2.0, 3.0, 1.0, 2.0]), np.array([0.1, 0.2, 9.0, 0.3])
    assert weighted_rank(statistics, weights) == pytest.approx((0.1 + 0.2 + 0.3) / 4)
    assert weighted_rank(statistics, 100 * weights) == 1
    assert weighted_rank(statistics[:1], weights[:1]) == pytest.approx(0.1)


def test_a_deep_tail_holds_its_level() -> None:
    """P(p <= a) at 1e-2, 1e-4 and 1e-6, over 3,000 keys drawn from the proposal and weighted back to random keys.

    Each share is below a by more than -5 standard errors, and above a tenth of it: keys that do well are as frequent as
    their p-values say, far beyond what random keys could show.
    """
    rng = np.random.default_rng(5)
    ids = np.concatenate([rng.integers(300, 340, 40), rng.integers(300, 8000, 40)])
    positions = np.arange(80)
    model = HiddenMarkovModel.of(ids, positions, known_key("deep").tables)
    proposal = Proposal(model)
    with unchecked():
        keys = proposal.sample(
            np.zeros((len(model.distinct), 0), dtype=np.uint8), 3000, DeterministicDraws("keys", ids, positions)
        )
        sets = [
            proposal.sample(keys.groups[:, :0], 1000, DeterministicDraws(f"draws {turn}", ids, positions))
            for turn in range(8)
        ]
    p = np.empty(3000)
    for number in range(3000):
        drawn = sets[number % 8]
        as_well = drawn.statistics >= keys.statistics[number] - TOLERANCE
        p[number] = (keys.weights[number] + drawn.weights[as_well].sum()) / 1001
    for alpha in (1e-2, 1e-4, 1e-6):
        counted = keys.weights * (p <= alpha)
        error = counted.std() / np.sqrt(len(counted))
        assert counted.mean() <= alpha + 5 * error
        assert counted.mean() >= alpha / 10
        assert error < alpha / 4  # the check says something


def test_other_draws_would_hardly_turn_a_verdict() -> None:
    """The spread of log p over 12 sets of draws, of texts with p between 1e-6 and 1e-2: .3 in the median at most."""
    spreads = []
    for seed in range(6):
        key = known_key(f"spread {seed}")
        ids = cut(marked_ids(key, 130, rate=0.76, seed=seed), 0.05, seed=seed)
        model = HiddenMarkovModel.of(ids, np.arange(len(ids)), key.tables)
        proposal, groups = Proposal(model), model.groups(key.tables)[:, None]
        with unchecked():
            samples = [proposal.sample(groups, MAX_DRAWS, DeterministicDraws(f"set {n}", ids, ids)) for n in range(12)]
        logs = np.log([weighted_rank(each.statistics, each.weights) for each in samples])
        if np.log(1e-6) < logs.mean() < np.log(1e-2):
            spreads.append(logs.std(ddof=1))
    assert len(spreads) >= 3
    assert np.median(spreads) < 0.3


# --- the screening test --------------------------------------------------------------------------


def test_a_text_that_the_screening_test_leaves_unlikely_keeps_the_rank() -> None:
    ranks = 0
    for seed in range(20):
        ids = np.random.default_rng(seed).integers(300, 8000, 80)
        p_value, draws = aligned_test(known_key("quick").tables, ids, np.arange(80), "any")
        if draws == SCREEN_DRAWS:
            ranks += 1
            assert p_value > SCREEN
    assert ranks >= 10


def test_the_screening_test_misses_no_mark() -> None:
    """Marked texts with p <= 1e-3 by drawn keys: the rank leaves every one of them likely."""
    for seed in range(12):
        key = known_key(f"quick {seed}")
        ids = cut(marked_ids(key, 150, rate=0.8, seed=seed), 0.08, seed=seed)
        _, draws = aligned_test(key.tables, ids, np.arange(len(ids)), "any")
        assert draws != SCREEN_DRAWS


# --- the level -----------------------------------------------------------------------------------

KEYS = 150
ALPHAS = (0.1, 0.01)


def p_values(kind: str, mode: Mode) -> NDArray[np.float64]:
    turns = texts(kind, 150)
    with unchecked():
        found: list[Detection] = [
            detector_of(f"level {k}", mode=mode, fpr=0.01).detect(turns[k % len(turns)]) for k in range(KEYS)
        ]
    return np.array([detection.p_value for detection in found])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("looped text", "auto"),
        ("CSV", "auto"),
        ("Markdown tables", "auto"),
        ("Python code", "auto"),
        ("prose", "auto"),
        ("looped text", "edited"),
        ("CSV", "edited"),
    ],
)
def test_the_p_value_holds_its_level(kind: str, mode: Mode) -> None:
    """At most alpha + 4 standard errors of 150 keys."""
    p = p_values(kind, mode)
    for alpha in ALPHAS:
        assert np.mean(p <= alpha) <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / KEYS)
    assert np.mean(p <= 0.7) > 0.05  # and is not always 1


# --- parts of a text -----------------------------------------------------------------------------


def test_only_the_ranges_given_are_scored_at_their_positions() -> None:
    key = known_key("edited")
    ids = marked_ids(key, 240, rate=1.0)
    dice = np.random.default_rng(0)
    text = np.concatenate([dice.integers(300, 8000, 101), ids[101:201], dice.integers(300, 8000, 80)])
    detector = Detector(key, tokenizer=builtin_tokenizer(), phase="start")
    found = detector.detect(text, only=[(101, 151), (151, 201)])
    assert (found.num_tokens_scored, found.num_tokens_matched) == (100, 100)
    assert found.p_value < 1e-20
    assert detector.detect(text, only=[(102, 201)]).num_tokens_matched == 99


@pytest.mark.parametrize(("spec", "longest"), [({}, 16_384), ({"code_length": 64}, 4096), ({"rotation": 40}, 4032)])
def test_more_states_mean_fewer_aligned_tokens(spec: dict[str, Any], longest: int) -> None:
    assert aligned_tokens(known_key("longest", **spec).spec) == longest


# --- the paper's windows -------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "window"), [(20, 8), (8, 8), (9, 1), (30, 7)])
@pytest.mark.parametrize("modulus", [2, 5])
def test_the_scores_are_the_definitions(length: int, window: int, modulus: int) -> None:
    matched = np.random.default_rng(length).random(length) < 0.6
    chance = 1 / modulus
    scores = [
        (matched[s : s + window].sum() - window * chance) / np.sqrt(window * chance * (1 - chance))
        for s in range(length - window + 1)
    ]
    assert window_statistic(np.stack([~matched, matched], axis=1), modulus, window)[1] == pytest.approx(
        np.mean(np.square(scores))
    )
    assert float(window_statistic(matched, modulus, window)) == pytest.approx(np.mean(np.square(scores)))


@pytest.mark.parametrize(("length", "window"), [(12, 4), (12, 8), (10, 10), (12, 1), (11, 7)])
def test_the_mean_over_all_sequences_of_coins_is_1(length: int, window: int) -> None:
    coins = np.array(list(itertools.product((False, True), repeat=length))).T
    assert window_statistic(coins, 2, window).mean() == pytest.approx(1)


def test_a_text_shorter_than_a_window_scores_its_mean() -> None:
    assert float(window_statistic(np.ones(5, dtype=bool), 2, 8)) == 1.0
