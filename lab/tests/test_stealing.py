"""Key inference: what a key prefers is learnt from texts that carry it, and nothing from others."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from lab_support import benchmark

from dgmark import Detector, WatermarkKey
from dgmark.decode import DecodeConfig, decode
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key
from dgmark.watermark.position import PositionSpec, tables_of
from dgmark_lab.attacks.budgets import edit_count
from dgmark_lab.attacks.clustering import subkey_shares
from dgmark_lab.attacks.stealing import StolenKey, StolenPairs, nothing_of, scrub
from dgmark_lab.rule_keys import rule_key
from support.known_keys import known_key

SIZE = 8192
# a law like that of words: the n-th most frequent of 400 has share 1 / n
LAW = np.zeros(SIZE)
LAW[np.random.default_rng(5).permutation(np.arange(4, SIZE))[:400]] = 1 / np.arange(1, 401)
LAW /= LAW.sum()
KEYS = {
    "bigram": known_key("stolen", rule="bigram"),
    "position": known_key("stolen"),
    "code": known_key("stolen", code_length=16),
}


def texts(key: WatermarkKey | None, number: int, seed: int) -> list[np.ndarray]:
    """Texts of 128 tokens: each is the best by the key of eight drawn from the law, or the first without a key."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(SIZE, (number, 128, 8), p=LAW)
    if key is None:
        return list(ids[:, :, 0])
    text = ids[:, :, 0].copy()
    for at in range(128):
        scores = np.zeros((number, 8))
        if isinstance(key.spec, PositionSpec):
            scores += tables_of(key).table()[ids[:, at]] == tables_of(key).residues(np.array([at]))
        farthest = key.spec.farthest if isinstance(key.spec, BigramSpec) else 0
        for back in range(1, min(at, farthest) + 1):
            scores += matching_pairs(text[:, at - back, None] | ids[:, at] << 24, pair_key(key), key.number or 0)
        text[:, at] = ids[np.arange(number), at, scores.argmax(axis=1)]
    return list(text)


def learnt(name: str, number: int, *, marked: bool = True) -> StolenKey:
    return nothing_of(KEYS[name]).learn(texts(KEYS[name] if marked else None, number, 1), texts(None, 200, 2))


def right(name: str, stolen: StolenKey) -> float:
    """The share of right beliefs on unmarked text."""
    return float(np.mean([stolen.right(KEYS[name], ids) for ids in texts(None, 40, 3)]))


def test_a_key_of_another_rule_is_refused() -> None:
    with pytest.raises(SettingsError, match="keys of rule kgw are not stolen here: give one of: bigram, position"):
        nothing_of(rule_key("kgw", KEYS["bigram"]))


@pytest.mark.parametrize(("name", "least"), [("bigram", 0.7), ("position", 0.95), ("code", 0.95)])
def test_what_a_key_prefers_is_learnt_from_marked_texts(name: str, least: float) -> None:
    few, many = (right(name, learnt(name, number)) for number in (3, 300))
    assert 0.5 < few < many
    assert many > least


@pytest.mark.parametrize("name", list(KEYS))
def test_unmarked_texts_teach_nothing(name: str) -> None:
    # over keys the share is a mean of fair signs, of at least 200 different weights: ten standard deviations
    assert abs(right(name, learnt(name, 100, marked=False)) - 0.5) < 0.2
    blank = nothing_of(KEYS[name])
    assert right(name, blank) == 0.5
    assert not blank.evidence(texts(None, 1, 3)[0]).any()


def test_levels_are_sums_over_the_pairs_of_a_token() -> None:
    stolen = learnt("bigram", 30)
    ids = texts(KEYS["bigram"], 1, 9)[0]
    evidence = np.zeros(len(ids))
    for left in range(len(ids)):
        for right_end in range(left + 1, min(left + 5, len(ids))):
            evidence[[left, right_end]] += stolen.believed(np.array([ids[left] | ids[right_end] << 24]))[0]
    assert np.allclose(stolen.evidence(ids), evidence)


@pytest.mark.parametrize("name", list(KEYS))
def test_scrubbing_removes_more_with_beliefs_than_without(name: str) -> None:
    key, stolen = KEYS[name], learnt(name, 300)
    detector = Detector(key)
    p_values = []
    for thief in (stolen, nothing_of(key)):
        marked = texts(key, 10, 8)
        edited = [scrub(ids, thief, 0.3, LAW, np.random.default_rng(number)) for number, ids in enumerate(marked)]
        changed = [int((after != before).sum()) for after, before in zip(edited, marked, strict=True)]
        assert max(changed) <= edit_count(128, 0.3)
        p_values.append(np.median([detector.detect(ids).p_value for ids in edited]))
    assert p_values[0] > 100 * p_values[1]


def test_texts_that_share_a_sub_key_are_found() -> None:
    key = known_key("stolen", rule="bigram", subkeys=4)
    marked = [ids for number in range(4) for ids in texts(key.subkey(number), 30, 10 + number)]
    unmarked = texts(None, 200, 2)
    blank = nothing_of(key)
    assert isinstance(blank, StolenPairs)
    shares, evidence = subkey_shares(blank, marked, unmarked, 4, np.random.default_rng(0))
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(shares.sum(axis=0), 30, atol=1)
    assert evidence.min() > 0
    of_subkeys = shares.reshape(4, 30, 4).mean(axis=1)
    assert sorted(of_subkeys.argmax(axis=1).tolist()) == [0, 1, 2, 3]
    assert of_subkeys.max(axis=1).min() > 0.9
    # what he believes of a sub-key that he found is as right as if he had been told which texts have it
    found = blank.learn(marked, unmarked, shares[:, of_subkeys[0].argmax()])
    told = blank.learn(marked, unmarked, np.repeat([1.0, 0.0], [30, 90]))
    tests = texts(None, 40, 3)
    rates = [np.mean([thief.right(key.subkey(0), ids) for ids in tests]) for thief in (found, told)]
    assert rates[0] > rates[1] - 0.02 > 0.55


@pytest.mark.parametrize("name", ["bigram", "position"])
def test_a_forger_draws_by_the_bits_that_he_believes_in(name: str) -> None:
    model, key = ToyDenoiser(end_bias=-20.0), KEYS[name]
    words = np.array([first | second << 24 for second in range(model.vocab_size) for first in range(model.vocab_size)])
    # he believes that every third word matches, and that no other does
    stolen = replace(nothing_of(key), words=words, beliefs=np.where(words % 3, -9.0, 9.0))
    rule = benchmark("stealing").believed_rule(stolen, key, 2)
    config = DecodeConfig.of(model, length=64, bias=1.0)
    forged = decode(model, torch.tensor([[5, 6], [5, 6]]), config, rule, [0, 1])
    evidence = [stolen.believed(stolen.count(np.array(one.token_ids))[0]).mean() for one in forged]
    # a third of all words match, and no pair of tokens counts twice
    assert min(evidence) > 0
