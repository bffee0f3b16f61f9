"""The test of the bigram rule against exact sums and plain loops; spans; sub-keys, which are payloads.

`test_level.py` tests that its p-value holds its level. Statistical checks have fixed seeds; the chance that one of them
would fail by luck is stated with it.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark import Detector, Keyring, WatermarkKey
from dgmark.detection.reading.pair_weights import Surprisal
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.results.detection import PAYLOAD_FIELDS
from dgmark.detection.results.figures import Span
from dgmark.detection.statistics.bigram import BigramTest
from dgmark.detection.statistics.p_values import binomial_tail
from dgmark.detection.statistics.pairs import DistinctPairs
from dgmark.detection.statistics.parts import Parts
from dgmark.detection.statistics.subkeys import STRENGTHS
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.rows.scoring import ScoringOptions
from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key, pair_words
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import WordClasses
from support.known_keys import builtin_tokenizer, known_key, sign_of
from support.marked_texts import marked_ids, marked_text
from support.part_scan import smallest_p
from support.unchecked import unchecked

PLAIN = known_key("pairs", rule="bigram")
MANY = known_key("sub-keys", subkeys=64)
WORDS = known_key("words", subkeys=64, tokens="words")


def scored(*parts: NDArray[np.int64]) -> ScoredIds:
    ids = np.concatenate(parts)
    return ScoredIds(ids, np.arange(len(ids)))


def unmarked(seed: int, length: int, words: int = 300) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(300, 300 + words, length)


def marked_by_pairs(key: WatermarkKey, length: int, strength: float, dice: np.random.Generator) -> NDArray[np.int64]:
    """Tokens drawn in proportion to the likelihood that each pair matches with probability (1 + strength) / 2."""
    ids: list[int] = []
    while len(ids) < length:
        token, before = (
            int(dice.integers(300, 8000)),
            np.array(ids[-spec_as(BigramSpec, key).farthest :], dtype=np.int64),
        )
        missed = np.count_nonzero(matching_pairs(pair_words(before, token), pair_key(key), key.number or 0) == 0)
        if dice.random() < ((1 - strength) / (1 + strength)) ** missed:
            ids.append(token)
    return np.array(ids)


def read_alike(ids: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Other ids of the same classes, where a class has others."""
    table, dice = WordClasses.of(builtin_tokenizer()).table, np.random.default_rng(seed)
    return np.array([dice.choice(np.flatnonzero(table == table[token])) for token in ids.tolist()])


def test_a_key_of_words_finds_the_same_in_tokens_that_read_alike() -> None:
    ids = marked_ids(WORDS.subkey(9), 200, rate=0.75)
    other = read_alike(ids)
    assert np.mean(other != ids) > 0.3
    for key in (WORDS, WORDS.subkey(9)):
        found, again = (BigramTest(key, scored(one)) for one in (ids, other))
        assert again.p_value() == found.p_value() < 1e-9
        assert again.fields(True) == found.fields(True)
        assert again.spans(1e-4) == found.spans(1e-4)
    exact = known_key("words", subkeys=64).subkey(9)
    marked = marked_ids(exact, 200, rate=0.75)
    assert BigramTest(exact, scored(marked)).p_value() < 1e-9
    assert BigramTest(exact, scored(read_alike(marked))).p_value() > 1e-9


def test_pairs_of_classes_are_counted_once() -> None:
    table = WordClasses.of(builtin_tokenizer()).table
    alike = np.flatnonzero(table == np.bincount(table).argmax())[:4]
    assert BigramTest(WORDS, scored(np.tile(alike, 50))).pairs == 1


@pytest.mark.parametrize("pairs", [1, 2, 7, 60, 200])
def test_the_tail_is_the_exact_sum(pairs: int) -> None:
    for matched in {0, 1, pairs // 2, pairs // 2 + 1, pairs}:
        exact = Fraction(sum(math.comb(pairs, k) for k in range(matched, pairs + 1)), 2**pairs)
        assert binomial_tail(matched, pairs) == pytest.approx(float(exact), rel=1e-11, abs=0)
    assert binomial_tail(20_000, 20_000) == np.finfo(float).tiny


@pytest.mark.parametrize(
    ("matched", "pairs", "exact"),  # computed with 60 digits
    [
        (501_000, 10**6, 0.022804149932691043),
        (515_000, 10**6, 4.7262031262857919e-198),
        (2_503_000, 5 * 10**6, 0.0036500538385400579),
        (2_540_000, 5 * 10**6, 1.2404874775782142e-280),
    ],
)
def test_the_tail_keeps_its_digits_at_millions_of_pairs(matched: int, pairs: int, exact: float) -> None:
    assert binomial_tail(matched, pairs) == pytest.approx(exact, rel=1e-12, abs=0)


@pytest.mark.parametrize("n", [5, 8, 40, 100])
def test_the_best_part_is_that_of_a_loop_over_all_parts(n: int) -> None:
    key, ids = known_key("parts", rule="bigram"), np.random.default_rng(n).integers(0, 12, n)  # most pairs are repeated
    matches = {(a, b): bool(matching_pairs(np.array([pair_words(a, b)]), pair_key(key))[0]) for a in ids for b in ids}

    def tail(first: int, last: int) -> tuple[float, int]:
        inside = range(first, min(last, n))
        pairs = {(int(ids[i]), int(ids[j])) for j in inside for i in inside if 1 <= j - i <= 4}
        return binomial_tail(sum(matches[pair] for pair in pairs), len(pairs)), len(pairs)

    test = BigramTest(key, scored(ids))
    best = test.evidence.best(test.matches(None))
    assert best.p_value == pytest.approx(smallest_p(n, tail), rel=1e-9)


@pytest.mark.parametrize("n", [1, 8, 9, 255, 256, 257, 900])
def test_grids_are_summed_together_as_one_by_one(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(n).integers(0, 40, n)
    pairs = DistinctPairs(spec_as(BigramSpec, PLAIN), ScoredIds(ids, np.arange(n)))

    def parts() -> Parts:
        return Parts(n, pairs.left, pairs.right, pairs.left_before)

    together = parts()
    monkeypatch.setattr("dgmark.detection.statistics.parts._TOGETHER", 1)
    monkeypatch.setattr("dgmark.detection.statistics.parts._KEPT_TOKENS", 0)
    alone = parts()
    assert len(together._grids) == min(1, len(alone._grids))
    for name in ("first", "last", "pairs", "share"):
        np.testing.assert_array_equal(getattr(together, name), getattr(alone, name))
    values = np.random.default_rng(0).integers(0, 9, len(pairs.left))
    np.testing.assert_array_equal(together.sums(values), alone.sums(values))
    np.testing.assert_array_equal(together.counts(values > 4), alone.counts(values > 4))
    np.testing.assert_array_equal(together.counts(values > -1), together.pairs)


def test_the_matches_of_tokens_are_those_of_their_pairs_on_both_sides() -> None:
    ids = unmarked(0, 30, 1000)
    signs = {
        (left, right): sign_of(PLAIN, int(ids[left]), int(ids[right]))
        for right in range(30)
        for left in range(max(0, right - 4), right)
    }
    expected = [sum(sign for pair, sign in signs.items() if place in pair) for place in range(30)]
    assert BigramTest(PLAIN, scored(ids)).net_matches(None).tolist() == expected


@pytest.mark.parametrize(
    ("ids", "uncertain"),
    [
        (unmarked(0, 0), "empty"),
        (unmarked(0, 20, 1000), "short"),
        (np.tile([1, 2, 3], 100), "repetitive"),
        (unmarked(0, 300, 1000), None),
    ],
)
def test_a_text_too_short_or_too_repetitive_is_uncertain(ids: NDArray[np.int64], uncertain: str | None) -> None:
    assert BigramTest(PLAIN, scored(ids)).uncertain_because(1.0, 1e-4) == uncertain


def test_ids_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(VocabularyMismatch):
        BigramTest(PLAIN, scored(np.array([5, 8192])))


# --- spans ---------------------------------------------------------------------------------------


def test_spans_are_the_marked_parts_of_their_sub_keys() -> None:
    marked = [marked_ids(MANY.subkey(number), 160) for number in (7, 50)]
    tokens = scored(unmarked(1, 300, 1000), marked[0], unmarked(2, 200, 1000), marked[1])
    found = BigramTest(MANY, tokens).spans(1e-4)
    assert [span.subkey for span in found] == [7, 50]
    for span, first in zip(found, (300, 660), strict=True):
        assert abs(span.first - first) <= 48
        assert abs(span.last - first - 160) <= 48
    assert BigramTest(known_key("another", subkeys=64), tokens).spans(1e-4) == []


@pytest.mark.parametrize("length", [816, 1840])  # of the longer one, p-values of the larger parts are the least float
def test_touching_parts_are_one_span_with_the_smallest_of_their_p_values(length: int) -> None:
    with unchecked():
        tokens = scored(unmarked(1, 208, 1000), marked_ids(PLAIN, length, rate=1.0), unmarked(2, 400, 1000))
    # no one part has just these tokens
    test, end = BigramTest(PLAIN, tokens), 208 + length
    parts = sorted(test.passing_parts(None, 1e-4), key=lambda part: part.first)
    assert [(part.first, part.last) for part in parts] == [(208, 256), (256, end)]
    (span,) = test.spans(1e-4)
    assert (span.first, span.last) == (208, end)
    assert span.p_value == min(part.p_value for part in parts)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_a_long_repetition_is_in_no_span(place: str, weighted: bool) -> None:
    one, other = (marked_ids(PLAIN, 256, seed=seed) for seed in (0, 1))
    again = np.tile(unmarked(3, 6, 1000), 500)
    pieces = {"before": [again, one], "between": [one, again, other], "after": [one, again]}[place]
    tokens = scored(*pieces)
    if weighted:
        nats = np.full(len(tokens.ids), 3.0)
        tokens = replace(tokens, surprisal=Surprisal(nats, "a model", "0" * 16))
    test, edges = BigramTest(PLAIN, tokens), np.cumsum([0, *map(len, pieces)])
    marked = [(edges[n], edges[n + 1]) for n, piece in enumerate(pieces) if piece is not again]
    found = test.spans(1e-4)
    assert len(found) == len(marked)
    for span, (first, last) in zip(found, marked, strict=True):
        assert abs(span.first - first) <= 48
        assert abs(span.last - last) <= 48
    shown = test.shown_tokens()
    assert shown[np.concatenate([np.arange(first, last) for first, last in marked])].all()
    assert np.count_nonzero(shown) < sum(last - first for first, last in marked) + 40


def test_a_marked_text_that_is_there_twice_is_a_span_twice() -> None:
    ids = marked_ids(PLAIN, 256)
    first, second = BigramTest(PLAIN, scored(ids, unmarked(1, 64, 1000), ids)).spans(1e-4)
    assert (first.first, second.last) == (0, 576)
    assert first.last <= 280
    assert second.first >= 300


def test_tokens_far_apart_in_the_text_are_in_different_spans() -> None:
    ids = np.concatenate([marked_ids(PLAIN, 128, seed=seed) for seed in (0, 1)])
    places = np.arange(256) + np.repeat([0, 1000], 128)  # special tokens stand between them
    found = [(span.first, span.last) for span in BigramTest(PLAIN, ScoredIds(ids, places)).spans(1e-4)]
    assert found == [(0, 128), (128, 256)]


def test_touching_spans_of_different_sub_keys_stay_apart() -> None:
    tokens = scored(*(marked_ids(MANY.subkey(number), 256) for number in (7, 50)))
    found = BigramTest(MANY, tokens).spans(1e-4)
    assert [(span.subkey, span.first, span.last) for span in found] == [(7, 0, 256), (50, 256, 512)]


# --- sub-keys ------------------------------------------------------------------------------------


def test_the_p_value_is_that_of_the_sub_key_times_their_number() -> None:
    key = known_key("one of them", subkeys=64)
    ids = marked_ids(key.subkey(3), 200)
    right, wrong = (Detector(key.subkey(number)).score(scored(ids)) for number in (3, 4))
    assert (right.verdict, right.subkey, right.subkey_confidence, right.subkeys_tested) == ("watermarked", 3, None, 1)
    assert wrong.verdict == "not_detected"
    found = Detector(key).score(scored(ids))
    assert (found.subkey, found.subkeys_tested, found.p_value) == (3, 64, 64 * right.p_value)
    assert Detector(key.subkey(3)).settings != Detector(key.subkey(4)).settings


def test_whether_a_text_is_too_short_pays_for_all_sub_keys() -> None:
    key, ids = known_key("limits", subkeys=1024), unmarked(0, 60, 3000)

    def uncertain(key: WatermarkKey, fpr: float) -> str | None:
        return Detector(key, tokenizer=builtin_tokenizer(), fpr=fpr).detect(ids).uncertain_because

    rates = [0.3, 1e-3, 1e-9]
    assert [uncertain(key, rate) for rate in rates] == [uncertain(key.subkey(0), rate / 1024) for rate in rates]
    assert [uncertain(key, rate) for rate in rates] != [uncertain(key.subkey(0), rate) for rate in rates]


def test_the_confidence_is_as_often_right_as_it_says() -> None:
    """Short texts whose pairs match at the strengths that it averages over: 5 standard errors (chance below 1e-6)."""
    dice = np.random.default_rng(0)
    confidence: list[float] = []
    right: list[bool] = []
    with unchecked():
        for number in range(400):
            key = known_key(f"calibrated {number % 10}", subkeys=64)
            test = BigramTest(key, scored(marked_by_pairs(key.subkey(number % 64), 24, STRENGTHS[number % 3], dice)))
            likeliest = test.ranked[0]
            confidence.append(test.confidence(likeliest, test.evidence.best(test.matches(likeliest))))
            right.append(likeliest == number % 64)
    claimed, true = np.array(confidence), np.mean(right)
    assert 0.2 < true < 0.9  # otherwise this would prove nothing
    assert abs(true - claimed.mean()) < 5 * np.sqrt(np.sum(claimed * (1 - claimed))) / len(claimed)


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
    expected = (321, found.subkey_confidence, 321)
    assert (shown["subkey"], shown["subkey_confidence"], shown["spans"][0]["subkey"]) == expected
    plain = Detector(known_key("plain"), tokenizer=builtin_tokenizer()).detect(text).to_row("a")
    assert not {"subkeys_tested", *PAYLOAD_FIELDS} & set(plain)


def test_a_scorer_without_sub_keys_has_no_payload() -> None:
    with pytest.raises(SettingsError, match="no key here has sub-keys"):
        ScoringOptions(payload=True).check(known_key("none"))
    ScoringOptions(payload=True).check(Keyring([known_key("none"), known_key("some", subkeys=2)]))


def test_tokens_are_shown_under_the_sub_key() -> None:
    key = known_key("shown", subkeys=128)
    detector = Detector(key, tokenizer=builtin_tokenizer())
    text = marked_text(key.subkey(77), 60)
    tokens = detector.tokens(text, detector.detect(text))
    assert all(token.matched for token in tokens)
    assert len(tokens) == 60


def test_a_keyring_mixes_keys_sub_keys_and_keys_with_sub_keys() -> None:
    many, plain = known_key("mixed", subkeys=16), known_key("mixed plain")
    keys = [many.subkey(2), plain, many, many.subkey(3), known_key("mixed other", subkeys=64)]
    ring = Keyring(keys, tokenizer=builtin_tokenizer())
    assert ring.detect(marked_ids(plain, 200)).key_fingerprint == plain.fingerprint
    found = ring.detect(marked_ids(many.subkey(3), 200))
    assert (found.key_fingerprint, found.subkey, found.subkeys_tested) == (many.fingerprint, 3, 1)
    found = ring.detect(marked_ids(many.subkey(9), 200))
    assert (found.key_fingerprint, found.subkey, found.subkeys_tested) == (many.fingerprint, 9, 16)
    alone = Detector(many.subkey(9)).score(scored(marked_ids(many.subkey(9), 200)))
    assert found.p_value == pytest.approx(5 * 16 * alone.p_value)
