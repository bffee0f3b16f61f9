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
from dgmark.detection.key_search import STRENGTHS, KeyCandidates, KeySearch, best_of
from dgmark.detection.keyring import Keyring
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import PAYLOAD_FIELDS, Phase, Span
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.subkeys import Subkeys
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids, marked_text
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
                p.append(KeyTest(key, phase=phase).score(scored(ids)).p_value)
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
    settings: dict[str, Any] = {"phase": phase, "max_crop": 0}
    for ids in (unmarked(1, 150), unmarked(2, 90, 20), marked_ids(key.subkey(19), 120, rate=0.75)):
        found = KeyTest(key, **settings).score(scored(ids))
        assert found.p_value == min(1, 32 * min(each_p(key, ids, **settings)))
        assert found.subkeys_tested == 32


def test_more_sub_keys_than_one_chunk_are_scanned() -> None:
    key = known_key("stretches", subkeys=8192)
    ids = marked_ids(key.subkey(5000), 160)
    found = KeyTest(key).score(scored(ids))
    assert (found.subkey, found.subkeys_tested) == (5000, 8192)


def test_independent_groups_pay_nothing_for_balance() -> None:
    ids = unmarked(0, 200)
    for key, pays in ((known_key("balance"), True), (known_key("balance", subkeys=4).subkey(0), False)):
        hypotheses = ExactTest(key.tables, "start", 0).hypotheses(ids, np.arange(200))
        assert (hypotheses[0].balance > 1) is pays


@pytest.mark.parametrize("content", [np.empty(0, dtype=np.int64), np.array([300])], ids=["empty", "one"])
def test_a_text_of_no_tokens_or_one_is_too_short(content: NDArray[np.int64]) -> None:
    found = KeyTest(known_key("short", subkeys=16)).score(scored(content))
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


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("kind", ["looped text", "CSV", "Markdown tables", "prose"])
def test_the_p_value_over_all_sub_keys_holds_its_level(kind: str) -> None:
    """400 keys of 16 sub-keys, on texts of one kind in turn."""
    turns = texts(kind, 160)
    keys = [known_key(f"level {n}", subkeys=16) for n in range(400)]
    p = np.array([KeyTest(key).score(scored(turns[n % len(turns)])).p_value for n, key in enumerate(keys)])
    for alpha in (0.1, 0.01):
        assert np.mean(p <= alpha) <= allowed(alpha, 400)
    assert np.mean(p <= 0.5) > 0.1  # a p-value that is always 1 would hold every level


# --- the payload ---------------------------------------------------------------------------------


def test_the_payload_is_hidden_unless_it_is_asked_for() -> None:
    key = known_key("payload", subkeys=512)
    detector = Detector(key, tokenizer=builtin_tokenizer())
    found = replace(detector.detect(text := marked_text(key.subkey(321), 120)), spans=(Span(0, 9, 3, 1e-9, 321),))
    assert found.subkey == 321
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
    """Short texts, marked at the strengths and phases that it averages over: 5 standard errors (chance below 1e-6)."""
    confidence: list[float] = []
    right: list[bool] = []
    with unchecked():
        for number in range(180):
            key = known_key(f"calibrated {number % 10}", subkeys=64)
            rate = (1 + STRENGTHS[number % 3]) / 2
            ids = marked_ids(key.subkey(number % 64), 41, rate=rate, seed=number)[number // 3 % 2 :]
            found = KeyTest(key, fpr=0.95).score(scored(ids))
            if found.subkey is not None and found.subkey_confidence is not None:
                confidence.append(found.subkey_confidence)
                right.append(found.subkey == number % 64)
    claimed, true = np.array(confidence), np.mean(right)
    assert len(claimed) > 60
    assert 0.2 < true < 0.9  # otherwise this would prove nothing
    spread = np.sqrt(np.sum(claimed * (1 - claimed))) / len(claimed)
    assert abs(true - claimed.mean()) < 5 * spread


def test_the_confidence_is_that_of_bayes_over_all_sub_keys() -> None:
    """Of 32 sub-keys all are looked at closely, so nothing is bounded: the sum over them is 1."""
    key = known_key("bayes", subkeys=32)
    scan = KeySearch([key], scored(marked_ids(key.subkey(7), 40)), "any", 0)
    each = [scan.confidence(number, 0) for number in range(32)]
    assert sum(each) == pytest.approx(1)
    assert int(np.argmax(each)) == 7


def test_a_scorer_without_sub_keys_has_no_payload() -> None:
    with pytest.raises(SettingsError, match="no key here has sub-keys"):
        Extras(payload=True).check(known_key("none"))
    Extras(payload=True).check(Keyring([known_key("none"), known_key("some", subkeys=2)]))


# --- crops, display, keyrings ------ -------------------------------------------------------------


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("spec", [name for name, spec in SPECS.items() if "rotation" not in spec])
def test_a_text_without_its_front_is_found(spec: str) -> None:
    key = known_key(f"cropped {spec}", subkeys=32, **SPECS[spec])
    found = KeyTest(key).score(scored(marked_ids(key.subkey(11), 200, rate=0.95)[23:]))
    assert (found.verdict, found.subkey) == ("watermarked", 11)


@pytest.mark.usefixtures("fast")
def test_the_confidence_of_a_cropped_text_of_a_rotating_key_is_that_at_its_crop() -> None:
    """A crop of two tokens leaves nine tokens of ten in their segment, so the sub-key ranks first uncropped too."""
    key = known_key("rotating crop", subkeys=32, rotation=20)
    found = KeyTest(key).score(scored(marked_ids(key.subkey(11), 800, rate=0.95)[2:]))
    assert (found.verdict, found.subkey, found.shift) == ("watermarked", 11, 2)
    assert found.subkey_confidence == pytest.approx(1, abs=1e-6)


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


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("spec", ["plain", "code"])
def test_a_keyring_scans_the_sub_keys_of_all_its_keys(spec: str) -> None:
    keys = [known_key(f"ring {n}", subkeys=32, **SPECS[spec]) for n in range(3)]
    ids = marked_ids(keys[1].subkey(30), 200)[3:]
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
