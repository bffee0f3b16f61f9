"""Key inference: groups are recovered from texts that carry them, and not from others."""

import numpy as np
import pytest

from dgmark import Detector, WatermarkKey
from dgmark_lab.attacks.edits import edit_count
from dgmark_lab.attacks.simulation import simulate_counts, simulate_texts
from dgmark_lab.attacks.stealing import (
    Estimate,
    beliefs,
    find_code,
    find_phases,
    forge,
    recovered_mass,
    residue_counts,
    scrub,
    steal,
)
from support.known_keys import known_key

SIZE = 8192
# a law like that of words: the n-th most frequent of 2,000 has share 1 / n
LAW = np.zeros(SIZE)
LAW[np.random.default_rng(5).permutation(np.arange(4, SIZE))[:2000]] = 1 / np.arange(1, 2001)
LAW /= LAW.sum()


def dice(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def marked(key: WatermarkKey, texts: int, match: float = 0.94, seed: int = 0) -> list[np.ndarray]:
    return list(simulate_texts(key, LAW, texts, 128, match, dice(seed)))


def tables(key: WatermarkKey, segments: int = 1) -> np.ndarray:
    return np.stack([key.tables.table(segment) for segment in range(segments)])


@pytest.mark.parametrize("match", [0.5, 0.94])
def test_simulated_texts_match_at_the_requested_rate(match: float) -> None:
    key = known_key("simulated")
    texts = marked(key, 200, match)
    share = np.mean([key.tables.matching(text, np.arange(128)) for text in texts])
    assert abs(share - match) < 5 * np.sqrt(match * (1 - match) / (200 * 128))  # false-alarm rate 6e-7
    assert all(LAW[text].min() > 0 for text in texts)


def test_simulated_counts_are_those_of_texts() -> None:
    key = known_key("simulated")
    at = simulate_counts(key, LAW, 5000, 4, 0.94, dice())
    assert (at.sum(axis=1) == 5000).all()
    matching = [at[place][key.tables.table() == place % 2].sum() / 5000 for place in range(4)]
    assert np.abs(np.array(matching) - 0.94).max() < 5 * np.sqrt(0.94 * 0.06 / 5000)  # 4 at 6e-7 each: 2.3e-6


def test_counts_are_by_segment_and_residue() -> None:
    counts = residue_counts([np.array([5, 6, 5, 5]), np.array([6])], 8, 2, rotation=2, phases=np.array([1, 0]))
    assert counts.shape == (2, 8, 2)
    assert counts[0, 5].tolist() == [0, 1]
    assert counts[0, 6].tolist() == [2, 0]
    assert counts[1, 5].tolist() == [1, 1]
    assert counts.sum() == 5


def test_a_belief_is_bayes_rule() -> None:
    counts = np.array([[[3, 1], [0, 0]]])
    assert np.allclose(beliefs(counts, 0.8)[0], [[16 / 17, 1 / 17], [0.5, 0.5]])


@pytest.mark.parametrize("modulus", [2, 3])
def test_known_groups_are_recovered(modulus: int) -> None:
    key = known_key("stolen", modulus=modulus)
    few, many = (recovered_mass(steal(marked(key, n), SIZE, modulus), tables(key), LAW) for n in (3, 100))
    assert 1 / modulus + 0.15 < few < many
    assert many > 0.93


def test_unmarked_texts_reveal_nothing() -> None:
    key = known_key("stolen")
    estimate = steal(marked(key, 100, match=0.5), SIZE)
    # over keys, the mass is a weighted sum of fair signs: five standard deviations, false-alarm rate 6e-7
    spread = 0.5 * np.sqrt((LAW**2).sum())
    assert abs(recovered_mass(estimate, tables(known_key("another")), LAW) - 0.5) < 5 * spread
    assert abs(recovered_mass(steal([], SIZE), tables(key), LAW) - 0.5) < 1e-9


def test_groups_are_recovered_from_cut_texts() -> None:
    key = known_key("stolen")
    cuts = dice(1).permutation(60) % 10
    texts = [text[cut:] for text, cut in zip(marked(key, 60), cuts, strict=True)]
    phases = find_phases(texts, SIZE, 2)
    assert len({(phase - cut) % 2 for phase, cut in zip(phases.tolist(), cuts.tolist(), strict=True)}) == 1
    blind = steal(texts, SIZE, phases_known=False)
    assert recovered_mass(blind, tables(key), LAW) > 0.88
    assert recovered_mass(steal(texts, SIZE), tables(key), LAW) < 0.75  # where the cuts are not reckoned with


def test_rotation_divides_what_is_learnt() -> None:
    key = known_key("stolen", rotation=16)
    texts = marked(key, 60)
    known = recovered_mass(steal(texts, SIZE, rotation=16), tables(key, 8), LAW)
    ignored = recovered_mass(steal(texts, SIZE), tables(key, 8), LAW)
    plain_key = known_key("stolen")
    plain = recovered_mass(steal(marked(plain_key, 60), SIZE), tables(plain_key), LAW)
    assert plain > known + 0.08 > ignored + 0.12


def test_a_secret_code_is_found_up_to_its_names() -> None:
    key = known_key("stolen", code_length=32)
    at = simulate_counts(key, LAW, 60, 128, 0.94, dice())
    found = find_code(at.reshape(4, 32, SIZE).sum(axis=0), 2)
    assert len(set((found ^ key.tables.code).tolist())) == 1


def test_forged_text_passes_and_scrubbed_text_does_not() -> None:
    key = known_key("stolen")
    estimate = steal(marked(key, 100), SIZE)
    detector = Detector(key)
    human = dice(7).choice(SIZE, 256, p=LAW)
    forged = forge(human, estimate, 0.3, LAW, dice())
    assert (forged != human).sum() == edit_count(256, 0.3)
    assert detector.detect(human).verdict == "not_detected"
    blank = Estimate(np.full((1, SIZE, 2), 0.5), np.arange(2))
    assert detector.detect(forge(human, blank, 0.5, LAW, dice())).verdict == "not_detected"
    assert detector.detect(forged).verdict == "watermarked"
    (real,) = simulate_texts(key, LAW, 1, 256, 0.94, dice(8))
    scrubbed = scrub(real, estimate, 0.5, LAW, dice())
    assert (scrubbed != real).sum() <= edit_count(256, 0.5)
    assert detector.detect(real).verdict == "watermarked"
    assert detector.detect(scrubbed).verdict == "not_detected"


def test_scrubbing_follows_the_phase_of_a_cut_text() -> None:
    key = known_key("stolen")
    estimate = steal(marked(key, 100), SIZE)
    (real,) = simulate_texts(key, LAW, 1, 257, 0.94, dice(8))
    before = key.tables.matching(real[1:], np.arange(1, 257)).mean()
    after = key.tables.matching(scrub(real[1:], estimate, 0.4, LAW, dice()), np.arange(1, 257)).mean()
    assert before > 0.9
    assert after < 0.65


def test_only_editable_places_are_edited() -> None:
    key = known_key("stolen")
    estimate = steal(marked(key, 30), SIZE)
    human = dice(7).choice(SIZE, 256, p=LAW)
    editable = np.arange(256) < 100
    for edit in (forge, scrub):
        edited = edit(human, estimate, 0.5, LAW, dice(), editable)
        assert (edited == human)[100:].all()
    assert (forge(human, estimate, 0.1, LAW, dice()) == forge(human, estimate, 0.1, LAW, dice())).all()
