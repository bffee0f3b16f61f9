"""Sub-keys in detection: the likeliest one is found, its p-value pays for all of them, and the payload is hidden.

Statistical checks have fixed seeds; the chance that one of them would fail by luck is stated with it.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jaxtyping import Int, UInt8
from numpy.typing import NDArray

from dgmark.detection.detect_files import Extras
from dgmark.detection.detector import Detector, KeyTest
from dgmark.detection.exact_test import ExactTest
from dgmark.detection.hidden_markov import INTACT
from dgmark.detection.key_search import KeyCandidates, KeySearch, best_of
from dgmark.detection.keyring import Keyring
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import PAYLOAD_FIELDS, Mode, Phase
from dgmark.detection.spans import SpanSearch, find_spans
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.subkeys import Subkeys
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import cut, marked_ids, marked_text
from support.unchecked import unchecked
from support.unmarked_texts import texts

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mod3": {"modulus": 3},
    "code": {"code_length": 12},
    "rotating": {"rotation": 40},
    "mod4-rotating-code": {"modulus": 4, "rotation": 50, "code_length": 8},
}


@pytest.fixture
def fast() -> Iterator[None]:
    """No run-time type checks, for tests that score many texts; others score the same ways with them."""
    with unchecked():
        yield


def scored(ids: NDArray[np.int64]) -> ScoredIds:
    return ScoredIds(ids, np.arange(len(ids)))


def unmarked(seed: int, length: int, words: int = 300) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(300, 300 + words, length)


def each_p(key: WatermarkKey, ids: NDArray[np.int64], **settings: Any) -> list[float]:
    """The p-value of every sub-key, tested as a key by itself, one after another."""
    children = [key.subkey(number) for number in range(key.spec.subkeys)]
    return [KeyTest(child, **settings).score(scored(ids)).p_value for child in children]


# --- the p-value ---------------------------------------------------------------------------------


class KnownGroups(Subkeys):
    """Sub-keys whose groups of the tokens 300, 301, ... are given: one row a token, one column a sub-key."""

    given: UInt8[np.ndarray, "tokens subkeys"]

    def chunks(self, ids: Int[np.ndarray, " distinct"], segment: int = 0) -> Any:  # noqa: ARG002
        yield 0, self.given[ids - 300]

    def groups(self, ids: Int[np.ndarray, " n"], subkey: int, segment: int = 0) -> Any:  # noqa: ARG002
        return self.given[ids - 300, subkey]


@pytest.mark.parametrize(("subkeys", "tokens", "phase"), [(4, 2, "any"), (2, 4, "start")])
def test_the_p_value_is_exact_over_all_groups_of_all_sub_keys(subkeys: int, tokens: int, phase: Phase) -> None:
    """Every one of the 2^8 tables of groups that independent coins can give, on texts of few distinct tokens."""
    dice = np.random.default_rng(0)
    for length in (7, 12):
        ids = 300 + dice.integers(0, tokens, length)
        p = []
        for bits in itertools.product([0, 1], repeat=tokens * subkeys):
            key = known_key("toy", subkeys=subkeys)
            known = KnownGroups(key.spec, key.secret or b"")
            known.given = np.array(bits, dtype=np.uint8).reshape(tokens, subkeys)
            key.__dict__["subkeys"] = known
            with unchecked():
                p.append(KeyTest(key, mode="intact", phase=phase).score(scored(ids)).p_value)
        values = np.array(p)
        for x in np.unique(values):
            assert np.mean(values <= x * (1 + 1e-12)) <= x * (1 + 1e-12)
        assert values.min() == pytest.approx(min(1, subkeys * smallest_p(ids, phase)), rel=1e-12)


def smallest_p(ids: NDArray[np.int64], phase: Phase) -> float:
    """The share of all groups of one sub-key that match as well as the luckiest ones."""
    distinct = np.unique(ids)
    best = []
    for bits in itertools.product([0, 1], repeat=len(distinct)):
        group = np.array(bits)[np.searchsorted(distinct, ids)]
        counts = [np.count_nonzero(group == (np.arange(len(ids)) + shift) % 2) for shift in (0, 1)]
        best.append(max(counts) if phase == "any" else counts[0])
    return float(np.mean(np.array(best) == max(best)))


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("phase", ["any", "start"])
def test_the_scan_by_counts_finds_what_a_loop_over_all_sub_keys_finds(spec: str, phase: Phase) -> None:
    key = known_key(f"loop {spec}", subkeys=32, **SPECS[spec])
    settings: dict[str, Any] = {"mode": "intact", "phase": phase, "max_crop": 0}
    for ids in (unmarked(1, 150), unmarked(2, 90, 20), marked_ids(key.subkey(19), 120, rate=0.75)):
        found = KeyTest(key, **settings).score(scored(ids))
        assert found.p_value == min(1, 32 * min(each_p(key, ids, **settings)))
        assert found.subkeys_tested == 32


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("mode", ["auto", "edited"])
def test_the_scan_by_alignment_finds_the_sub_key_of_an_edited_text(spec: str, mode: Mode) -> None:
    key = known_key(f"edited {spec}", subkeys=32, **SPECS[spec])
    ids = cut(marked_ids(key.subkey(19), 200, rate=0.85), 0.04)
    found = KeyTest(key, mode=mode).score(scored(ids))
    assert (found.verdict, found.subkey) == ("watermarked", 19)
    alone = KeyTest(key.subkey(19), mode=mode).score(scored(ids))
    assert found.p_value == 32 * alone.p_value
    assert (found.p_aligned, found.shift, found.edited_fraction) == (
        alone.p_aligned,
        alone.shift,
        alone.edited_fraction,
    )


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("mode", ["auto", "edited", "intact"])
def test_no_p_value_is_smaller_than_the_smallest_of_all_sub_keys_allows(mode: Mode) -> None:
    key = known_key("smallest", subkeys=16)
    for seed in range(6):
        ids = unmarked(seed, 100)
        each = each_p(key, ids, mode=mode)
        p = KeyTest(key, mode=mode).score(scored(ids)).p_value
        assert p >= min(1, 16 * min(each))
        assert p in [min(1, 16 * one) for one in each]


def test_more_sub_keys_than_one_chunk_are_scanned() -> None:
    key = known_key("stretches", subkeys=8192)
    ids = marked_ids(key.subkey(5000), 160)
    for mode in ("auto", "intact"):
        found = KeyTest(key, mode=mode).score(scored(ids))
        assert (found.subkey, found.subkeys_tested) == (5000, 8192)


def test_independent_groups_pay_nothing_for_balance() -> None:
    ids = unmarked(0, 200)
    for key, pays in ((known_key("balance"), True), (known_key("balance", subkeys=4).subkey(0), False)):
        hypotheses = ExactTest(key.tables, "start", 0).hypotheses(ids, np.arange(200))
        assert (hypotheses[0].balance > 1) is pays


@pytest.mark.parametrize("content", [np.empty(0, dtype=np.int64), np.array([300])], ids=["empty", "one"])
@pytest.mark.parametrize("mode", ["auto", "edited", "intact"])
def test_a_text_of_no_tokens_or_one_is_too_short(content: NDArray[np.int64], mode: Mode) -> None:
    found = KeyTest(known_key("short", subkeys=16), mode=mode).score(scored(content))
    assert (found.verdict, found.p_value, found.subkey) == ("uncertain", 1.0, None)


def test_only_the_sub_key_that_is_asked_for_is_tested() -> None:
    key = known_key("one of them", subkeys=64)
    ids = marked_ids(key.subkey(3), 200)
    right, wrong = (KeyTest(key.subkey(number)).score(scored(ids)) for number in (3, 4))
    assert (right.verdict, right.subkey, right.subkey_confidence, right.subkeys_tested) == ("watermarked", 3, None, 1)
    assert wrong.verdict == "not_detected"
    assert Detector(key.subkey(3)).settings != Detector(key.subkey(4)).settings


# --- the level -----------------------------------------------------------------------------------


def allowed(alpha: float, keys: int) -> float:
    """The rate plus 5 standard errors, and a little for small counts: by luck above it with chance below 1e-6."""
    return alpha + 5 * float(np.sqrt(alpha * (1 - alpha) / keys)) + 4 / keys


LEVELS: list[tuple[Mode, str]] = [
    *(("intact", kind) for kind in ("looped text", "CSV", "Markdown tables", "prose")),
    *(("auto", kind) for kind in ("prose", "looped text", "Markdown tables")),
    ("edited", "prose"),
]


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("mode", "kind"), LEVELS)
def test_the_p_value_over_all_sub_keys_holds_its_level(mode: Mode, kind: str) -> None:
    """400 keys of 16 sub-keys, 80 with alignment, on texts of one kind in turn."""
    count, most, alphas = (400, 160, (0.1, 0.01)) if mode == "intact" else (80, 90, (0.2, 0.05))
    turns = texts(kind, most)
    keys = [known_key(f"{'level' if mode == 'intact' else 'aligned'} {n}", subkeys=16) for n in range(count)]
    p = np.array([KeyTest(key, mode=mode).score(scored(turns[n % len(turns)])).p_value for n, key in enumerate(keys)])
    for alpha in alphas:
        assert np.mean(p <= alpha) <= allowed(alpha, count)
    assert np.mean(p <= 0.5) > 0.1  # a p-value that is always 1 would hold every level


# --- the payload ---------------------------------------------------------------------------------


def test_the_payload_is_hidden_unless_it_is_asked_for() -> None:
    key = known_key("payload", subkeys=512)
    detector = Detector(key, tokenizer=builtin_tokenizer())
    found = replace(detector.detect(text := marked_text(key.subkey(321), 120)), spans=detector.spans(text))
    assert (found.subkey, found.spans and found.spans[0].subkey) == (321, 321)
    assert found.subkey_confidence == pytest.approx(1, abs=1e-6)
    hidden = found.to_row("a")
    assert "321" not in repr(found)
    assert "321" not in hidden["summary"] + hidden["key_fingerprint"]
    assert hidden["subkeys_tested"] == 512
    assert not set(PAYLOAD_FIELDS) & {*hidden, *hidden["spans"][0]}
    shown = found.to_row("a", payload=True)
    assert (shown["subkey"], shown["subkey_confidence"], shown["spans"][0]["subkey"]) == (
        321,
        found.subkey_confidence,
        321,
    )
    plain = Detector(known_key("plain"), tokenizer=builtin_tokenizer()).detect(text).to_row("a")
    assert not {"subkeys_tested", *PAYLOAD_FIELDS} & set(plain)


def test_the_confidence_is_as_often_right_as_it_says() -> None:
    """Short texts, marked as the bettor expects: 5 standard errors (by luck with chance below 1e-6).

    She spreads her stake over three strengths of the mark and both phases. Mode auto also expects edits, which these
    texts lack, so it claims less than is true.
    """
    confidence: dict[str, list[float]] = {"intact": [], "auto": []}
    right: dict[str, list[bool]] = {"intact": [], "auto": []}
    with unchecked():
        for number in range(180):
            key = known_key(f"calibrated {number % 10}", subkeys=64)
            rate = (1 + INTACT[number % 3]) / 2
            ids = marked_ids(key.subkey(number % 64), 41, rate=rate, seed=number)[number // 3 % 2 :]
            for mode in ("intact", "auto"):
                found = KeyTest(key, fpr=0.95, mode=mode).score(scored(ids))
                if found.subkey is not None and found.subkey_confidence is not None:
                    confidence[mode].append(found.subkey_confidence)
                    right[mode].append(found.subkey == number % 64)
    for mode in ("intact", "auto"):
        claimed, true = np.array(confidence[mode]), np.mean(right[mode])
        assert len(claimed) > 60
        assert 0.2 < true < 0.9  # otherwise this would prove nothing
        spread = np.sqrt(np.sum(claimed * (1 - claimed))) / len(claimed)
        assert true - claimed.mean() > -5 * spread
        if mode == "intact":
            assert true - claimed.mean() < 5 * spread


def test_the_confidence_is_that_of_bayes_over_all_sub_keys() -> None:
    """Of 32 sub-keys all are played, so nothing is bounded: the sum over them is 1."""
    key = known_key("bayes", subkeys=32)
    scan = KeySearch([key], scored(marked_ids(key.subkey(7), 40)), "auto", "any", 0)
    each = [scan.confidence(number) for number in range(32)]
    assert sum(each) == pytest.approx(1)
    assert int(np.argmax(each)) == 7


def test_a_scorer_without_sub_keys_has_no_payload() -> None:
    with pytest.raises(SettingsError, match="no key here has sub-keys"):
        Extras(payload=True).check(known_key("none"))
    Extras(payload=True).check(Keyring([known_key("none"), known_key("some", subkeys=2)]))


# --- crops, display, spans, keyrings -------------------------------------------------------------


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("spec", SPECS)
def test_a_text_without_its_front_is_found(spec: str) -> None:
    key = known_key(f"cropped {spec}", subkeys=32, **SPECS[spec])
    found = KeyTest(key).score(scored(marked_ids(key.subkey(11), 200, rate=0.95)[23:]))
    assert (found.verdict, found.subkey) == ("watermarked", 11)


def test_tokens_are_shown_under_the_sub_key() -> None:
    key = known_key("shown", subkeys=128)
    detector = Detector(key, tokenizer=builtin_tokenizer())
    text = marked_text(key.subkey(77), 60)
    tokens = detector.tokens(text, detector.detect(text))
    assert all(token.matched for token in tokens)
    assert len(tokens) == 60
    other = builtin_tokenizer().decode(unmarked(0, 60).tolist())
    found = detector.detect(other)
    matched = [token.matched for token in detector.tokens(other, found) if token.matched is not None]
    assert sum(map(bool, matched)) == found.num_tokens_matched


@pytest.mark.usefixtures("fast")
def test_two_responses_pasted_together_are_two_spans_with_their_sub_keys() -> None:
    key = known_key("pasted", subkeys=64)
    human = unmarked(3, 70, 1500)
    first, second = (marked_ids(key.subkey(number), 90, rate=0.95) for number in (9, 50))
    ids = np.concatenate([human, first, second, human[::-1]])
    spans = Detector(key, tokenizer=builtin_tokenizer()).spans(ids)
    assert [span.subkey for span in spans] == [9, 50]
    assert all(abs(span.start - at) < 12 for span, at in zip(spans, (70, 160), strict=True))
    assert spans[0].end <= spans[1].start
    assert all(span.p_value <= 1e-4 for span in spans)


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize(("end", "kept"), [(112, False), (150, True)])
def test_an_overlapped_span_is_cut_back_to_a_part_that_passes(end: int, kept: bool) -> None:
    """The first 100 tokens match one sub-key; tokens 60 to `end` match another one."""
    key = known_key("overlap", subkeys=4)
    one, other = (key.subkey(number).tables for number in (1, 2))
    dice, words, places = np.random.default_rng(0), np.arange(300, 8000), np.arange(240)
    ids = dice.choice(words, 240)
    for place in range(end):
        wanted = np.ones(len(words), dtype=bool)
        if place < 100:
            wanted &= one.table()[words] == place % 2
        if place >= 60:
            wanted &= other.table()[words] == place % 2
        ids[place] = dice.choice(words[wanted])
    tokens = ScoredIds(ids, places)
    spans = dict(find_spans(key, tokens, 1e-4))
    (alone,) = SpanSearch(other, tokens).spans(1e-4 / 4)
    assert spans[1].first == 0
    assert spans[1].last >= 92
    assert (2 in spans) is kept
    if kept:
        assert spans[2].first >= spans[1].last
        assert 4 * alone.p_value < spans[2].p_value <= 1e-4


def test_what_is_asked_of_a_detected_text_needs_no_second_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    text = builtin_tokenizer().decode(unmarked(5, 200, 3000).tolist())
    detector = Detector(known_key("once", subkeys=64), tokenizer=builtin_tokenizer())
    found = detector.detect(text)
    scanned = detector.tokens(text, replace(found, subkey_tested=None))
    assert found.verdict == "not_detected"

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("all sub-keys were scanned again")

    monkeypatch.setattr(KeySearch, "likeliest", refuse)
    assert scanned == detector.tokens(text, found)
    assert "subkey_tested" not in found.to_row("a", payload=True)
    assert "subkey_tested" not in repr(found)


@pytest.mark.slow
def test_spans_over_all_sub_keys_hold_their_level() -> None:
    """120 keys of 8 sub-keys at the rate .2, on prose in turn."""
    turns = texts("prose", 100)
    with unchecked():
        any_span = [
            bool(
                Detector(known_key(f"spans {n}", subkeys=8), tokenizer=builtin_tokenizer(), fpr=0.2).spans(
                    turns[n % len(turns)]
                )
            )
            for n in range(120)
        ]
    assert np.mean(any_span) <= allowed(0.2, 120)
    assert np.mean(any_span) > 0


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("spec", ["plain", "code"])
def test_a_keyring_scans_the_sub_keys_of_all_its_keys(spec: str) -> None:
    keys = [known_key(f"ring {n}", subkeys=32, **SPECS[spec]) for n in range(3)]
    ids = cut(marked_ids(keys[1].subkey(30), 200), 0.03)
    found = Keyring(keys, tokenizer=builtin_tokenizer()).detect(ids)
    assert (found.key_fingerprint, found.subkey) == (keys[1].fingerprint, 30)
    assert (found.keys_tested, found.subkeys_tested) == (3, 32)
    assert found.p_value == 96 * KeyTest(keys[1].subkey(30)).score(scored(ids)).p_value
    assert found.subkey_confidence == pytest.approx(1, abs=1e-3)


def test_a_keyring_mixes_keys_sub_keys_and_keys_with_sub_keys() -> None:
    many, plain = known_key("mixed", subkeys=16), known_key("mixed plain")
    keys = [many.subkey(2), plain, many, many.subkey(3), known_key("mixed other", subkeys=64)]
    ring = Keyring(keys, tokenizer=builtin_tokenizer())
    assert ring.detect(marked_ids(plain, 200)).key_fingerprint == plain.fingerprint
    found = ring.detect(marked_ids(many.subkey(3), 200))
    assert (found.key_fingerprint, found.subkey, found.subkeys_tested) == (many.fingerprint, 3, 1)
    found = ring.detect(marked_ids(many.subkey(9), 200))
    assert (found.key_fingerprint, found.subkey, found.subkeys_tested) == (many.fingerprint, 9, 16)


# --- ranking -------------------------------------------------------------------------------------


def test_the_best_of_several_parts_are_the_best_of_all() -> None:
    dice = np.random.default_rng(0)
    values, groups = dice.integers(0, 9, 50), dice.integers(0, 2, (3, 50), dtype=np.uint8)
    codes = dice.integers(0, 2, (50, 4), dtype=np.uint8)
    parts = [KeyCandidates(at := np.arange(begin, begin + 10), groups[:, at], codes[at]) for begin in range(0, 50, 10)]
    best = best_of(parts, lambda part: values[part.numbers].astype(float), 7)
    expected = sorted(range(50), key=lambda n: (-values[n], n))[:7]
    assert best.numbers.tolist() == expected
    assert np.array_equal(best.groups, groups[:, expected])
    assert best.codes is not None
    assert np.array_equal(best.codes, codes[expected])


def test_whether_a_text_is_too_short_pays_for_all_sub_keys() -> None:
    key, ids = known_key("limits", subkeys=1024), unmarked(0, 60, 3000)

    def limit(key: WatermarkKey, fpr: float) -> str | None:
        return Detector(key, tokenizer=builtin_tokenizer(), fpr=fpr).detect(ids).uncertain_because

    rates = [0.3, 0.01, 1e-9]
    assert [limit(key, rate) for rate in rates] == [limit(key.subkey(0), rate / 1024) for rate in rates]
    assert [limit(key, rate) for rate in rates] != [limit(key.subkey(0), rate) for rate in rates]
