"""Sub-keys in detection: the likeliest one is found, its p-value pays for all of them, and the payload is hidden.

Statistical checks have fixed seeds; the chance that one of them would fail by luck is stated with it.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark.detection.bigram_rule import STRENGTHS, PairTest
from dgmark.detection.detect_files import Extras
from dgmark.detection.detector import Detector, KeyTest
from dgmark.detection.finding import Span
from dgmark.detection.keyring import Keyring
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import PAYLOAD_FIELDS
from dgmark.errors import SettingsError
from dgmark.watermark.bigrams import matching_pairs, pair_words
from dgmark.watermark.key import WatermarkKey
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids, marked_text
from support.unchecked import unchecked
from support.unmarked_texts import texts


def scored(ids: NDArray[np.int64]) -> ScoredIds:
    return ScoredIds(ids, np.arange(len(ids)))


def unmarked(seed: int, length: int, words: int = 300) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(300, 300 + words, length)


def marked_by_pairs(key: WatermarkKey, length: int, strength: float, dice: np.random.Generator) -> NDArray[np.int64]:
    """Tokens drawn in proportion to the likelihood that each pair matches with probability (1 + strength) / 2."""
    ids: list[int] = []
    while len(ids) < length:
        token, before = int(dice.integers(300, 8000)), np.array(ids[-key.pair_spec.farthest :], dtype=np.int64)
        missed = np.count_nonzero(matching_pairs(pair_words(before, token), key.pair_key, key.number or 0) == 0)
        if dice.random() < ((1 - strength) / (1 + strength)) ** missed:
            ids.append(token)
    return np.array(ids)


# --- the p-value ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [np.empty(0, dtype=np.int64), np.array([300])], ids=["empty", "one"])
def test_a_text_of_no_tokens_or_one_is_too_short(content: NDArray[np.int64]) -> None:
    found = KeyTest(known_key("short", subkeys=16)).score(scored(content))
    assert (found.verdict, found.p_value, found.subkey) == ("uncertain", 1.0, None)


def test_the_p_value_is_that_of_the_sub_key_times_their_number() -> None:
    key = known_key("one of them", subkeys=64)
    ids = marked_ids(key.subkey(3), 200)
    right, wrong = (KeyTest(key.subkey(number)).score(scored(ids)) for number in (3, 4))
    assert (right.verdict, right.subkey, right.subkey_confidence, right.subkeys_tested) == ("watermarked", 3, None, 1)
    assert wrong.verdict == "not_detected"
    found = KeyTest(key).score(scored(ids))
    assert (found.subkey, found.subkeys_tested, found.p_value) == (3, 64, 64 * right.p_value)
    assert Detector(key.subkey(3)).settings != Detector(key.subkey(4)).settings


@pytest.mark.parametrize("kind", ["looped text", "CSV", "Markdown tables", "prose"])
def test_the_p_value_over_all_sub_keys_holds_its_level(kind: str) -> None:
    """400 keys of 16 sub-keys: the rate plus 5 standard errors and 4 texts, exceeded by luck less than once in 1e6."""
    turns = texts(kind, 160)
    with unchecked():
        keys = [known_key(f"level {n}", subkeys=16) for n in range(400)]
        p = np.array([KeyTest(key).score(scored(turns[n % len(turns)])).p_value for n, key in enumerate(keys)])
    for alpha in (0.1, 0.01):
        assert np.mean(p <= alpha) <= alpha + 5 * np.sqrt(alpha * (1 - alpha) / 400) + 4 / 400
    assert p.min() < 1  # a p-value that is always 1 would hold every level


def test_whether_a_text_is_too_short_pays_for_all_sub_keys() -> None:
    key, ids = known_key("limits", subkeys=1024), unmarked(0, 60, 3000)

    def limit(key: WatermarkKey, fpr: float) -> str | None:
        return Detector(key, tokenizer=builtin_tokenizer(), fpr=fpr).detect(ids).uncertain_because

    rates = [0.3, 1e-3, 1e-9]
    assert [limit(key, rate) for rate in rates] == [limit(key.subkey(0), rate / 1024) for rate in rates]
    assert [limit(key, rate) for rate in rates] != [limit(key.subkey(0), rate) for rate in rates]


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
    """Short texts whose pairs match at the strengths that it averages over: 5 standard errors (chance below 1e-6)."""
    dice = np.random.default_rng(0)
    confidence: list[float] = []
    right: list[bool] = []
    with unchecked():
        for number in range(400):
            key = known_key(f"calibrated {number % 10}", subkeys=64)
            test = PairTest(key, scored(marked_by_pairs(key.subkey(number % 64), 24, STRENGTHS[number % 3], dice)))
            likeliest = test.ranked_subkeys()[0]
            confidence.append(test.confidence(likeliest, test.best_part(likeliest)))
            right.append(likeliest == number % 64)
    claimed, true = np.array(confidence), np.mean(right)
    assert 0.2 < true < 0.9  # otherwise this would prove nothing
    assert abs(true - claimed.mean()) < 5 * np.sqrt(np.sum(claimed * (1 - claimed))) / len(claimed)


def test_the_confidence_is_that_of_bayes_over_all_sub_keys() -> None:
    key = known_key("bayes", subkeys=32)
    test = PairTest(key, scored(marked_ids(key.subkey(7), 40)))
    each = [test.confidence(number, test.best_part(7)) for number in range(32)]
    assert sum(each) == pytest.approx(1)
    assert int(np.argmax(each)) == 7


def test_a_scorer_without_sub_keys_has_no_payload() -> None:
    with pytest.raises(SettingsError, match="no key here has sub-keys"):
        Extras(payload=True).check(known_key("none"))
    Extras(payload=True).check(Keyring([known_key("none"), known_key("some", subkeys=2)]))


# --- display, keyrings ---------------------------------------------------------------------------


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

    monkeypatch.setattr(PairTest, "ranked_subkeys", refuse)
    assert scanned == detector.tokens(text, found)
    assert "subkey_tested" not in found.to_row("a", payload=True)
    assert "subkey_tested" not in repr(found)


def test_a_keyring_mixes_keys_sub_keys_and_keys_with_sub_keys() -> None:
    many, plain = known_key("mixed", subkeys=16), known_key("mixed plain")
    keys = [many.subkey(2), plain, many, many.subkey(3), known_key("mixed other", subkeys=64)]
    ring = Keyring(keys, tokenizer=builtin_tokenizer())
    assert ring.detect(marked_ids(plain, 200)).key_fingerprint == plain.fingerprint
    found = ring.detect(marked_ids(many.subkey(3), 200))
    assert (found.key_fingerprint, found.subkey, found.subkeys_tested) == (many.fingerprint, 3, 1)
    found = ring.detect(marked_ids(many.subkey(9), 200))
    assert (found.key_fingerprint, found.subkey, found.subkeys_tested) == (many.fingerprint, 9, 16)
    alone = KeyTest(many.subkey(9)).score(scored(marked_ids(many.subkey(9), 200)))
    assert found.p_value == pytest.approx(5 * 16 * alone.p_value)
