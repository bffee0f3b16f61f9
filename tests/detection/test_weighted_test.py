"""The weighted test: against a loop over all parts, its level, what it reads, and what it refuses."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dgmark import Detector, Keyring, WatermarkKey
from dgmark.detection.reading.pair_weights import (
    CAP,
    CHANGED,
    MAX_WEIGHT,
    STEP,
    SURPRISE,
    Surprisal,
    choice_of,
    weights_of,
)
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.reading.surprisal import checked_surprisal, nats_of_tokens, text_of_ids
from dgmark.detection.results.figures import TokenSpan
from dgmark.detection.results.sentences import meaning
from dgmark.detection.statistics.bigram import BigramTest
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.errors import ModelFault, SettingsError
from dgmark.watermark.bigram import matching_pairs, pair_key, pair_words
from support.cases import cases
from support.known_keys import builtin_tokenizer, known_key, weight_figures
from support.marked_texts import marked_ids, marked_text
from support.part_scan import smallest_p
from support.surprisal_models import ALL_ALIKE, FIRST_SEEN, HASHED, MODELS, Read, RuleModel
from support.unchecked import unchecked
from support.unmarked_texts import KINDS, texts

PLAIN = known_key("pairs", rule="bigram")
MANY = known_key("sub-keys", subkeys=64)
# the share of p-values at or below alpha of so many independent keys exceeds this with a chance of at most 1e-6
KEYS, SURE = 300, 1e-6


def read(ids: np.ndarray, nats: np.ndarray) -> ScoredIds:
    return ScoredIds(ids, np.arange(len(ids)), Surprisal(nats, "a model", "f" * 16))


def drawn_nats(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).exponential(2.0, length)


# --- the test ---


@pytest.mark.parametrize("n", [5, 8, 40, 100])
def test_the_best_part_is_that_of_a_loop_over_all_parts(n: int) -> None:
    ids, nats = np.random.default_rng(n).integers(0, 12, n), drawn_nats(n, n)  # most pairs are repeated
    weight: dict[tuple[int, int], int] = {}
    for j in range(n):
        for i in range(j - 1, max(-1, j - 5), -1):
            place = weights_of(nats, np.array([i]), np.array([j]))[0]
            weight.setdefault((int(ids[i]), int(ids[j])), int(place))  # the first place gives the weight
    matches = {pair: bool(matching_pairs(np.array([pair_words(*pair)]), pair_key(PLAIN))[0]) for pair in weight}

    def tail(first: int, last: int) -> tuple[float, int]:
        inside = range(first, min(last, n))
        pairs = sorted({(int(ids[i]), int(ids[j])) for j in inside for i in inside if 1 <= j - i <= 4})
        coins = MatchNull.of_weights(np.array([weight[pair] for pair in pairs], dtype=np.int64))
        return np.exp(coins.log_tail(sum(weight[pair] for pair in pairs if matches[pair]))), len(pairs)

    test = BigramTest(PLAIN, read(ids, nats))
    best = test.evidence.best(test.matches(None))
    assert best.p_value == pytest.approx(smallest_p(n, tail), rel=1e-9)


@pytest.mark.parametrize("key", [PLAIN, MANY])
def test_equal_weights_give_the_p_value_and_the_sub_key_of_the_count(key: WatermarkKey) -> None:
    for seed in range(3):
        one = MANY.subkey(5) if key is MANY else PLAIN
        ids = np.concatenate([np.random.default_rng(seed).integers(300, 900, 90), marked_ids(one, 120, seed=seed)])
        counted, weighed = (
            BigramTest(key, ScoredIds(ids, np.arange(210))),
            BigramTest(key, read(ids, np.full(210, 2.0))),
        )
        assert set(weighed.evidence.values.tolist()) == {round(2.0 * 1.25 / STEP)}
        assert weighed.p_value() == pytest.approx(counted.p_value(), rel=1e-9)
        assert weighed.subkey == counted.subkey
        assert weighed.fields(True)["subkey_confidence"] == pytest.approx(counted.fields(True)["subkey_confidence"])
        assert weighed.fields(True)["z_score"] == pytest.approx(counted.fields(True)["z_score"])
        assert weighed.uncertain_because(1, 1e-4) == counted.uncertain_because(1, 1e-4)


def test_the_ranking_of_sub_keys_is_by_weighted_sums() -> None:
    ids, nats = marked_ids(MANY.subkey(9), 160, rate=0.7, seed=3), drawn_nats(3, 160)
    test = BigramTest(MANY, read(ids, nats))
    whole = [int(test.evidence.values[test.matches(subkey)].sum()) for subkey in range(64)]
    assert test.ranked[0] == int(np.argmax(whole)) == 9
    assert test.confidence(9, TokenSpan(0, 160, 1.0, 0.0)) > 0.99


def test_a_mark_where_there_is_choice_is_stronger_by_weights_than_by_counts() -> None:
    """Tokens that a model is sure of match by chance, the others do under the key."""
    dice, marked = np.random.default_rng(8), marked_ids(PLAIN, 200, rate=0.9, seed=8)
    sure = dice.random(200) < 0.5
    ids = np.where(sure, dice.integers(300, 1800, 200), marked)
    weighed = BigramTest(PLAIN, read(ids, np.where(sure, 0.05, 3.5))).p_value()
    counted = BigramTest(PLAIN, ScoredIds(ids, np.arange(200))).p_value()
    assert weighed < counted / 100


def test_passing_parts_do_not_overlap_and_the_verdict_comes_from_the_same_test() -> None:
    for seed in range(6):
        ids = np.concatenate([np.random.default_rng(seed).integers(300, 900, 200), marked_ids(PLAIN, 60, seed=seed)])
        test = BigramTest(PLAIN, read(ids, drawn_nats(seed, 260)))
        for level in (1e-3, 1e-6, 1e-12, test.p_value()):
            parts = sorted(test.passing_parts(None, level), key=lambda part: part.first)
            assert bool(parts) == (test.p_value() <= level)
            assert all(part.p_value <= level for part in parts)
            assert all(one.last <= other.first for one, other in pairwise(parts))


# --- its level ---


@pytest.mark.cover(1)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", [*KINDS, "one token"])
def test_the_p_value_holds_its_level_whatever_the_weights(kind: str, model: str) -> None:
    tokenizer = builtin_tokenizer()
    turns = ["the " * 120] if kind == "one token" else texts(kind, 120)
    with unchecked():
        keys = [known_key(f"weighted level {number}", rule="bigram") for number in range(KEYS)]
        p = np.array(
            [
                Detector(key, tokenizer=tokenizer, surprisal_model=MODELS[model]).detect(turns[n % len(turns)]).p_value
                for n, key in enumerate(keys)
            ]
        )
    for alpha in (0.5, 0.1, 0.01, 0.001):
        most = stats.binom.isf(SURE, KEYS, alpha)
        assert np.count_nonzero(p <= alpha) <= most


def test_weights_do_not_depend_on_the_key() -> None:
    text = marked_text(PLAIN, 90)
    digests = {
        weight_figures(Detector(known_key(f"other {n}", rule="bigram"), surprisal_model=HASHED).detect(text)).digest
        for n in range(5)
    }
    assert len(digests) == 1


# --- weights ---


def test_choice_is_surprisal_up_to_a_cap_and_little_for_what_is_no_draw() -> None:
    assert choice_of(np.array([0.0, 1.5, 4.0, 8.9, 9.1, 40.0])).tolist() == [0.0, 1.5, CAP, CAP, CHANGED, CHANGED]
    assert SURPRISE > CAP
    left, right = np.array([0, 1, 0]), np.array([1, 0, 0])
    assert weights_of(np.array([0.0, 4.0]), left, right).tolist() == [16, 4, 0]
    assert weights_of(np.array([4.0]), np.array([0]), np.array([0])).tolist() == [MAX_WEIGHT]


def test_noise_of_a_float_moves_single_weights_by_one() -> None:
    nats, pairs = drawn_nats(1, 400), np.arange(399)
    other = nats + np.random.default_rng(2).normal(0, 1e-4, 400)
    moved = weights_of(np.maximum(other, 0), pairs, pairs + 1) - weights_of(nats, pairs, pairs + 1)
    assert np.abs(moved).max() <= 1
    assert np.count_nonzero(moved) <= 4  # expected: under 1


# --- from a model's tokens to the scored ones ---


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.lists(st.integers(1, 6), min_size=1, max_size=20))
def test_surprisal_is_spread_over_characters_and_summed(mine: list[int], other: list[int]) -> None:
    size = max(sum(mine), sum(other))
    mine[-1] += size - sum(mine)
    other[-1] += size - sum(other)
    nats = np.random.default_rng(len(mine)).exponential(2, len(other))
    offsets, of_model = (
        np.stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)], axis=1) for lengths in (mine, other)
    )
    found = nats_of_tokens(offsets, of_model, nats)
    by_character = np.repeat(nats / other, other)
    assert found == pytest.approx([by_character[a:b].sum() for a, b in offsets], abs=1e-9)
    assert found.sum() == pytest.approx(nats.sum())
    assert nats_of_tokens(of_model, of_model, nats) == pytest.approx(nats)


def test_bytes_of_one_character_share_its_surprisal() -> None:
    of_three = np.array([[0, 1], [1, 2], [1, 2], [1, 2], [2, 3]])
    found = nats_of_tokens(of_three, np.array([[0, 1], [1, 2], [2, 3]]), np.array([1.0, 6.0, 2.0]))
    assert found.tolist() == [1.0, 2.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("nats", [[1.0], [1.0, np.nan], [1.0, -2.0], [np.inf, 1.0], ["a", "b"], None])
def test_what_is_no_surprisal_is_refused(nats: Any) -> None:
    with pytest.raises(ModelFault, match="fairy"):
        checked_surprisal("ab", ([[0, 1], [1, 2]], nats), "fairy")


@pytest.mark.parametrize(("why", "offsets"), cases(__file__, "other_tokens"))
def test_tokens_that_are_not_those_of_the_text_are_refused(why: str, offsets: Any) -> None:
    with pytest.raises(ModelFault, match=why):
        checked_surprisal("the old sea", (offsets, [1.0] * len(offsets or ())), "fairy")


def test_a_class_of_ones_own_may_give_lists() -> None:
    """Tokens may leave out white space and controls."""
    offsets, nats = checked_surprisal("the old\n\u0003sea", ([(0, 3), (4, 7), (9, 12)], [1, 2.5, 0]), "fairy")
    assert (offsets.tolist(), nats.tolist()) == ([[0, 3], [4, 7], [9, 12]], [1.0, 2.5, 0.0])
    assert checked_surprisal("", ([], []), "fairy")[0].shape == (0, 2)

    class Lists:
        name, fingerprint = "lists", "0" * 16

        def surprisals(self, texts: Sequence[str]) -> list[Any]:
            return [(offsets.tolist(), nats.tolist()) for offsets, nats in HASHED.surprisals(texts)]

    text = marked_text(PLAIN, 120)
    by_lists, by_arrays = (Detector(PLAIN, surprisal_model=model).detect(text) for model in (Lists(), HASHED))
    assert by_lists.p_value == by_arrays.p_value


def test_ids_have_the_surprisal_of_their_text() -> None:
    detector, text = Detector(PLAIN, surprisal_model=HASHED), marked_text(PLAIN, 90)
    ids = builtin_tokenizer().encode(text)
    by_text, by_ids = detector.detect(text), detector.detect(ids)
    assert (by_ids.figures, by_ids.p_value) == (by_text.figures, by_text.p_value)


def test_the_characters_of_ids_that_their_text_is_not_read_as() -> None:
    tokenizer = builtin_tokenizer()
    ids = [tokenizer.encode(letter)[0] for letter in "the moon and the sea" * 10]  # a letter each
    text, offsets = text_of_ids(tokenizer, ids)
    assert tokenizer.encode(text) != ids
    assert text == "the moon and the sea" * 10
    assert offsets.tolist() == [[n, n + 1] for n in range(200)]


# --- the detector ---


def test_a_row_says_which_test_was_run_and_by_which_model() -> None:
    text = marked_text(PLAIN, 120)
    weighed, counted = (Detector(PLAIN, surprisal_model=model).detect(text).to_row("t") for model in (HASHED, None))
    assert (counted["test"], counted["figures"]["weights"]) == ("count", None)
    weights = weighed["figures"]["weights"]
    assert (weighed["test"], weights["model"], weights["fingerprint"]) == ("weighted", "hashed", HASHED.fingerprint)
    assert 0 < weights["matched"] <= weights["scored"]
    assert 1 < weights["effective_pairs"] <= weighed["figures"]["pairs_scored"]
    assert Detector(known_key("groups")).detect(text).test == "count"


def test_the_words_of_a_verdict_name_the_model() -> None:
    text = marked_text(PLAIN, 120)
    weighed, counted = (meaning(Detector(PLAIN, surprisal_model=model).detect(text)) for model in (HASHED, None))
    assert any("how much choice they left the writer, as the language model hashed sees" in one for one in weighed)
    assert not any("language model hashed" in one for one in counted)


def test_the_settings_of_a_detection_name_the_model() -> None:
    for scorer in (Detector(PLAIN, surprisal_model=HASHED), Keyring([PLAIN, MANY], surprisal_model=HASHED)):
        assert scorer.settings["surprisal_model"] == HASHED.fingerprint
    assert "surprisal_model" not in Detector(PLAIN).settings


def test_a_keyring_weighs_each_key_and_pays_for_all() -> None:
    text = marked_text(PLAIN, 120)
    alone = Detector(PLAIN, surprisal_model=FIRST_SEEN).detect(text)
    of_two = Keyring([known_key("another", rule="bigram"), PLAIN], surprisal_model=FIRST_SEEN).detect(text)
    assert of_two.key_fingerprint == PLAIN.fingerprint
    assert of_two.p_value == pytest.approx(2 * alone.p_value)
    assert of_two.figures == alone.figures


def test_ranges_are_scored_with_the_surprisal_of_the_whole_text() -> None:
    text = marked_text(PLAIN, 120)
    part = Detector(PLAIN, surprisal_model=FIRST_SEEN).reader.read(text, [(100, 300)])
    whole = Detector(PLAIN, surprisal_model=FIRST_SEEN).reader.locate(text)
    inside = (whole.offsets[:, 0] >= 100) & (whole.offsets[:, 1] <= 300)
    assert part.surprisal is not None
    assert whole.surprisal is not None
    assert part.surprisal.nats.tolist() == whole.surprisal.nats[inside].tolist()
    assert Detector(PLAIN, surprisal_model=FIRST_SEEN).detect(text, only=[(100, 300)]).test == "weighted"


def test_a_text_is_read_once_for_its_verdict_its_spans_and_its_tokens() -> None:
    model = RuleModel("counting", lambda _text, words: [float(len(word) % 4) for word in words])
    detector, text = Detector(PLAIN, surprisal_model=model), marked_text(PLAIN, 120)
    detection = detector.detect(text)
    detector.spans(text)
    shown = detector.tokens(text, detection)
    assert model.texts_read == 1
    assert len({token.weight for token in shown}) > 1
    assert all(token.weight == 1.0 for token in Detector(PLAIN).tokens(text, Detector(PLAIN).detect(text)))


def test_a_text_of_which_the_model_is_sure_is_uncertain_and_never_not_detected() -> None:
    text, sure = marked_text(known_key("another", rule="bigram"), 120), RuleModel("sure", lambda _, w: [0.0] * len(w))
    assert Detector(PLAIN).detect(text).verdict == "not_detected"
    found = Detector(PLAIN, surprisal_model=sure).detect(text)
    assert (found.verdict, found.uncertain_because, found.p_value) == ("uncertain", "short", 1.0)
    assert Detector(PLAIN, surprisal_model=sure).detect("").uncertain_because == "empty"


def test_a_rule_without_weights_refuses_a_model() -> None:
    for refused in (
        lambda: Detector(known_key("groups"), surprisal_model=HASHED),
        lambda: Keyring([PLAIN, known_key("groups")], surprisal_model=HASHED),
    ):
        with pytest.raises(SettingsError, match="position, has no weighted test: leave the surprisal model out"):
            refused()
    with unchecked(), pytest.raises(SettingsError, match="not a int"):
        Detector(PLAIN, surprisal_model=3)  # type: ignore[arg-type]


def test_tokens_that_no_model_has_read_are_not_counted_in_silence() -> None:
    weighted, tokens = Detector(PLAIN, surprisal_model=HASHED), Detector(PLAIN).reader.read(marked_text(PLAIN, 60))
    with pytest.raises(SettingsError, match="a language model has read"):
        weighted.score(tokens)
    with pytest.raises(SettingsError, match="a language model has read"):
        Detector(PLAIN).score(replace(tokens, surprisal=Surprisal(np.ones(len(tokens.ids)), "m", "f")))


def test_a_model_that_leaves_a_text_out_is_a_fault() -> None:
    class Forgetful(RuleModel):
        def surprisals(self, texts: Sequence[str]) -> list[Read]:
            return super().surprisals(texts)[1:]

    model = Forgetful("forgetful", lambda _text, words: [1.0] * len(words))
    with pytest.raises(ModelFault, match="surprisals of 0 texts, not of 1"):
        Detector(PLAIN, surprisal_model=model).detect("some words that nobody reads")


@settings(max_examples=15)
@given(st.text(max_size=60))
def test_any_text_can_be_weighed(text: str) -> None:
    found = Detector(MANY, surprisal_model=HASHED).detect(text)
    assert 0 < found.p_value <= 1
    assert found.figures.weights is not None
    assert pickle.loads(pickle.dumps(found)) == found
    assert ALL_ALIKE.surprisals([text])[0][0].shape[1] == 2
