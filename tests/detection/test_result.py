from dataclasses import replace

import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.result import Detection, meaning, rarity, verdict_sentence
from support.known_keys import known_key


@pytest.fixture(scope="module")
def detection() -> Detection:
    return Detector(known_key("words")).detect("")


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (1.0, "likely by chance"),
        (0.51, "likely by chance"),
        (0.2, "1 in 5"),
        (1 / 3, "1 in 3"),
        (1e-4, "1 in 10,000"),
        (1.01e-4, "1 in 9,000"),
        (1.3e-7, "1 in 7 million"),
        (1e-6, "1 in 1 million"),
        (2.1e-12, "1 in 400 billion"),
        (1e-300, "1 in 1,000 trillion"),
    ],
)
def test_rarity_rounds_so_as_to_claim_less(p_value: float, words: str) -> None:
    assert rarity(p_value) == words


def test_found(detection: Detection) -> None:
    found = replace(detection, verdict="watermarked", p_value=1.3e-7, num_tokens_scored=300)
    sentence = verdict_sentence(found)
    assert sentence.startswith(f"This text carries the watermark of key {detection.key_fingerprint}. ")
    assert sentence.endswith("looks like this is at most 1 in 7 million.")
    assert verdict_sentence(found, public=True).endswith("at most 1 in 10,000.")


def test_passages_only(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", uncertain_because=None, num_tokens_scored=900)
    assert verdict_sentence(absent, spans=1).startswith("A passage of this text carries the watermark")
    assert verdict_sentence(absent, spans=3).startswith("3 passages of this text carry the watermark")
    assert "was not found" in verdict_sentence(absent)


def test_a_key_without_a_secret_promises_no_rarity(detection: Detection) -> None:
    keyless = replace(detection, verdict="watermarked", guaranteed=False, num_tokens_scored=300)
    for spans, verdict in ((0, keyless), (1, replace(keyless, verdict="not_detected"))):
        assert "anybody can make this mark" in verdict_sentence(verdict, spans=spans)
        assert "1 in" not in verdict_sentence(verdict, spans=spans)


def test_absence_names_all_keys_that_were_tried(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", keys_tested=1200, num_tokens_scored=900)
    assert verdict_sentence(absent) == "No watermark of the 1,200 keys was found in this text."
    assert verdict_sentence(replace(absent, keys_tested=1, scheme="kgw")).startswith("The kgw watermark of key ")


def test_meaning(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", uncertain_because=None, num_tokens_scored=900)
    assert any("any other language model or from a person" in sentence for sentence in meaning(absent))
    found = replace(absent, verdict="watermarked")
    assert not any("any other language model" in sentence for sentence in meaning(found))
    for scored, short in ((0, False), (1, True), (199, True), (200, False)):
        sentences = meaning(replace(absent, num_tokens_scored=scored))
        assert any("very short" in sentence for sentence in sentences) == short
    assert any("invisible" in sentence for sentence in meaning(replace(found, normalised=("invisible",))))
