"""Scans of keys whose sub-keys are pairs: the right pair is found, and its p-value pays for all pairs.

For most tests a key has few pairs, so that all can be tried one after another. Statistical checks have fixed seeds.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

import dgmark.watermark.groups
from dgmark.detection.candidates import paired_subkeys
from dgmark.detection.evidence import KeyTest
from dgmark.detection.keyring import Keyring
from dgmark.detection.ranking import log_winnings
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Mode
from dgmark.detection.subkey_scan import SubkeyScan
from dgmark.detection.subkey_spans import find_subkey_stretches
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import cut, filled, marked_ids
from support.unchecked import unchecked
from support.unmarked_texts import texts

MANY, MOST = 2**24, 2**32


def scored(ids: NDArray[np.int64]) -> ScoredIds:
    return ScoredIds(ids, np.arange(len(ids)))


def pairs_of(numbers: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(dgmark.watermark.groups, "MOST_SUBKEYS", numbers)
    monkeypatch.setattr(dgmark.watermark.groups, "PAIRED_SUBKEYS", (numbers**2,))
    return numbers**2


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pairs of 8 numbers a class."""
    return pairs_of(8, monkeypatch)


@pytest.fixture
def some(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pairs of 16 numbers a class: more than are played."""
    return pairs_of(16, monkeypatch)


@pytest.mark.parametrize(("mode", "subkeys"), [("auto", MANY), ("edited", MANY), ("intact", MANY), ("auto", MOST)])
def test_the_payload_is_found_and_paid_for(mode: Mode, subkeys: int) -> None:
    key, subkey = known_key("found", subkeys=subkeys), subkeys - 4099
    ids = marked_ids(key.subkey(subkey), 260, rate=0.9)
    if mode != "intact":
        ids = filled(cut(ids, 0.03), 0.02)
    with unchecked():
        found = KeyTest(key, mode=mode).detect(scored(ids))
        alone = KeyTest(key.subkey(subkey), mode=mode).detect(scored(ids))
    assert (found.verdict, found.subkey, found.subkeys_tested) == ("watermarked", subkey, subkeys)
    assert found.p_value == subkeys * alone.p_value
    assert found.subkey_confidence == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("mode", ["auto", "edited", "intact"])
def test_the_likeliest_of_all_pairs_is_tested(mode: Mode, few: int) -> None:
    key = known_key("all pairs", subkeys=few)
    ids = cut(marked_ids(key.subkey(27), 80, rate=0.9), 0.02) if mode != "intact" else marked_ids(key.subkey(27), 90)
    with unchecked():
        each = [KeyTest(key.subkey(n), mode=mode).evidence(scored(ids)).p_value for n in range(few)]
        found = KeyTest(key, mode=mode).detect(scored(ids))
    assert found.p_value == few * min(each)
    assert found.subkey == int(np.argmin(each)) == 27


def test_the_p_value_over_all_pairs_holds_its_level(few: int) -> None:
    """120 keys on prose and tables in turn: by luck above with chance below 1e-6, see `test_subkey_scan`."""
    turns = [text for kind in ("prose", "Markdown tables", "looped text") for text in texts(kind, 120)]
    with unchecked():
        p = np.array(
            [
                KeyTest(known_key(f"pairs {n}", subkeys=few), mode="intact")
                .detect(scored(turns[n % len(turns)]))
                .p_value
                for n in range(120)
            ]
        )
    for alpha in (0.1, 0.01):
        assert np.mean(p <= alpha) <= alpha + 5 * np.sqrt(alpha * (1 - alpha) / 120) + 4 / 120
    assert np.mean(p <= 0.9) > 0.1


def test_the_confidence_is_close_to_bayes_over_all_pairs(some: int) -> None:
    """Bayes over all 256 pairs, against 64 of them played and the others by their classes; of texts unclear enough."""
    key, unclear = known_key("bayes", subkeys=some), 0
    for seed in range(12):
        tokens = scored(marked_ids(key.subkey(7 * seed), 36, rate=0.85, seed=seed))
        with unchecked():
            scan = SubkeyScan([key], tokens, "intact", "any", 0)
            subkey = int(scan._counted[0])
            exact = _bayes(scan, some)
            unclear += exact[subkey] < 0.8
            assert scan.confidence(subkey) == pytest.approx(exact[subkey], abs=0.15)
    assert unclear > 3


def _bayes(scan: SubkeyScan, count: int) -> NDArray[np.float64]:
    logs = log_winnings(scan._model, scan._columns(np.arange(count)), "intact")
    return np.asarray(np.exp(logs - np.logaddexp.reduce(logs)))


@pytest.mark.parametrize("length", [0, 1, 2, 9])
def test_a_short_text_is_uncertain(length: int) -> None:
    key = known_key("short pairs", subkeys=MANY)
    ids = marked_ids(key.subkey(5), length) if length else np.empty(0, dtype=np.int64)
    assert KeyTest(key).detect(scored(ids)).verdict == "uncertain"
    assert find_subkey_stretches(key, scored(ids), 1e-4) == []


def test_a_text_whose_tokens_are_all_of_one_class_is_scored() -> None:
    key = known_key("one class", subkeys=MANY)
    child = key.subkey(7 + 4096 * 9)
    whole = marked_ids(child, 300, rate=0.97)
    first = paired_subkeys(key).places(whole)[0]
    found = KeyTest(key).detect(ScoredIds(whole[first], first))
    assert found.subkey is not None
    assert found.subkey % 4096 == 7
    assert found.subkey_confidence == pytest.approx(1 / 4096, rel=0.1)


def test_two_responses_pasted_together_are_two_spans(few: int) -> None:
    key = known_key("pasted pairs", subkeys=few)
    one, other = (marked_ids(key.subkey(number), 130, rate=0.97, seed=number) for number in (3, 60))
    with unchecked():
        found = find_subkey_stretches(key, scored(np.concatenate([one, other])), 1e-4)
    assert [subkey for subkey, _ in found] == [3, 60]
    assert abs(found[0][1].last - 130) < 20


def test_a_keyring_finds_the_key_and_the_pair() -> None:
    keys = [known_key(f"ring {n}", subkeys=MANY) for n in range(2)] + [known_key("plain")]
    found = Keyring(keys, tokenizer=builtin_tokenizer()).detect(marked_ids(keys[1].subkey(123_456), 200).tolist())
    assert (found.key_fingerprint, found.subkey) == (keys[1].fingerprint, 123_456)
