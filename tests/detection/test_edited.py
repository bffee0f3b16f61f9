"""The test for edited text and the combined verdict: what it finds, what it costs, and that it holds its level."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dgmark.detection import edited
from dgmark.detection.detector import Detector
from dgmark.detection.edited import FEW_DRAWS, aligned_tokens, edited_test
from dgmark.detection.redraw import FIRST_DRAWS
from dgmark.detection.result import Detection, Mode
from dgmark.errors import SettingsError
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
    edited = detector.detect(cut(marked_ids(detector.key, 200), 0.08))
    assert edited.p_edited is not None
    assert edited.p_intact is not None
    assert edited.p_value == pytest.approx(min(1.0, edited.p_edited / 0.9, edited.p_intact / 0.1), rel=1e-12)
    whole = detector.detect(ids := marked_ids(detector.key, 200))
    assert whole.p_intact == detector_of(mode="intact").detect(ids).p_value
    assert whole.p_value == pytest.approx(whole.p_intact / 0.1, rel=1e-12)
    assert (whole.p_edited, whole.draws, whole.edited_fraction) == (None, 0, None)


def test_mode_edited_leaves_the_exact_test_out() -> None:
    found = detector_of(mode="edited").detect(marked_ids(known_key("edited"), 200))
    assert found.verdict == "watermarked"
    assert found.p_intact is None
    assert found.p_value == found.p_edited


def test_mode_intact_leaves_alignment_out() -> None:
    found = detector_of(mode="intact").detect(cut(marked_ids(known_key("edited"), 200), 0.1))
    assert (found.p_edited, found.draws) == (None, 0)
    assert found.p_value == found.p_intact


def test_an_unknown_mode_is_refused() -> None:
    with unchecked(), pytest.raises(SettingsError, match="auto, intact, edited"):
        Detector(known_key("edited"), tokenizer=builtin_tokenizer(), mode="both")  # type: ignore[arg-type]


def test_the_same_text_and_key_give_the_same_p_value() -> None:
    ids = cut(marked_ids(known_key("edited"), 90, rate=0.7), 0.1)
    detector = detector_of()
    detector.detect(ids[::2])
    assert detector.detect(ids) == detector_of().detect(ids)


@pytest.mark.parametrize("mode", ["auto", "edited"])
@pytest.mark.parametrize("length", [0, 1, 7])
def test_a_short_text_is_uncertain(mode: Mode, length: int) -> None:
    found = detector_of(mode=mode).detect(marked_ids(known_key("edited"), length, rate=1.0))
    assert found.verdict == "uncertain"


@pytest.mark.parametrize(
    ("mode", "fpr", "share"),
    [("intact", 1e-4, 1.0), ("auto", 1e-4, 0.81), ("edited", 1e-4, 0.9), ("auto", 1e-6, 0.1), ("edited", 1e-6, 0.1)],
)
def test_a_text_is_uncertain_where_the_best_share_of_its_mode_would_miss_a_typical_mark(
    mode: Mode, fpr: float, share: float
) -> None:
    detector = detector_of(mode=mode, fpr=fpr)
    for length in range(24, 130, 3):
        found = detector.detect(np.arange(300, 300 + length))  # distinct ids: the null is a binomial, at two phases
        tells = 2 * stats.binom.sf(np.ceil(0.75 * length) - 1, length, 0.5) <= share * fpr
        assert found.verdict == ("not_detected" if tells else "uncertain"), length


def test_the_front_of_a_very_long_text_is_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edited, "LONGEST", 300)
    key = known_key("edited")
    ids, positions = np.random.default_rng(0).integers(300, 8000, 900), np.arange(900)
    assert edited_test(key, ids, positions, "any", 0.2) == edited_test(key, ids[:300], positions[:300], "any", 0.2)


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


def test_where_a_rank_cannot_decide_few_keys_are_drawn() -> None:
    found = detector_of(mode="edited", fpr=1e-9).detect(cut(marked_ids(known_key("edited"), 60), 0.1))
    assert found.verdict != "watermarked"
    assert found.draws <= FEW_DRAWS
    assert found.p_value < 0.05


@pytest.mark.parametrize(("spec", "states"), [({"code_length": 64}, 64), ({"rotation": 40}, 65)])
def test_many_states_draw_what_is_affordable(
    spec: dict[str, Any], states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that the first draws leave undecided, under a budget of 200 draws where 11,111 would be needed."""
    key = known_key("budget", **spec)
    ids = cut(marked_ids(key, 200, rate=0.74), 0.05)
    monkeypatch.setattr(edited, "MOST_WORK", 200 * len(ids) * states)
    found = edited_test(key, ids, np.arange(len(ids)), "any", 1e-4)
    assert found.draws == 200
    monkeypatch.setattr(edited, "MOST_WORK", 1)
    assert edited_test(key, ids, np.arange(len(ids)), "any", 1e-4).draws == FIRST_DRAWS


def test_a_loop_with_a_slip_in_it_is_no_mark() -> None:
    """Two lucky tokens in turn, out of step now and then: nothing but two coins, however long."""
    loop = np.array([400, 500] * 300)
    with unchecked():
        found = [detector_of(f"loop {k}").detect(np.delete(loop, [101, 290, 401])).p_value for k in range(40)]
    assert min(found) > 0.05


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
    assert np.mean(p <= 0.7) > 0.05  # and is not idle


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


def test_tokens_that_straddle_the_edge_of_a_range_of_characters_are_not_scored() -> None:
    detector = detector_of()
    text = "The river ran quietly under the old bridge."
    encoding = detector.tokenizer.encode_with_offsets(text)
    start, end = encoding.offsets[2][0], encoding.offsets[5][1]
    assert detector.detect(text, only=[(start, end)]).num_tokens_scored == 4
    assert detector.detect(text, only=[(start + 1, end - 1)]).num_tokens_scored == 2
    assert detector.detect(text, only=[(0, len(text))]) == detector.detect(text)


@pytest.mark.parametrize("wrong", [(-1, 3), (3, 3), (5, 2), (0, 21)])
def test_a_range_that_cannot_be_meant_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(SettingsError, match="START < END <= 20"):
        detector_of().detect("x" * 20, only=[wrong])


@pytest.mark.parametrize(("spec", "longest"), [({}, 16_384), ({"code_length": 64}, 4096), ({"rotation": 40}, 4032)])
def test_fewer_tokens_are_aligned_the_more_states_there_are(spec: dict[str, Any], longest: int) -> None:
    assert aligned_tokens(known_key("longest", **spec).spec) == longest
