"""The test of the bigram rule against exact sums and plain loops; its level over random keys; spans; sub-keys."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dgmark import Detector, WatermarkKey
from dgmark.detection.bigram_rule import FIRST_UNIT, MAX_UNITS, MIN_UNITS, PairTest
from dgmark.detection.keyring import Keyring
from dgmark.detection.p_values import binomial_tail
from dgmark.detection.reader import ScoredIds
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.bigrams import matching_pairs, pair_words
from dgmark.watermark.spec import BigramSpec

RNG = np.random.default_rng(3)


def key_of(secret: int = 0, subkeys: int = 1, farthest: int = 4) -> WatermarkKey:
    spec = BigramSpec(nearest=1, farthest=farthest, table_size=1000, subkeys=subkeys)
    return WatermarkKey(spec, "", secret.to_bytes(32, "little"))


def tokens_of(ids: np.ndarray) -> ScoredIds:
    return ScoredIds(ids, np.arange(len(ids)))


def marked(key: WatermarkKey, n: int, subkey: int = 0, draws: int = 4) -> np.ndarray:
    """Tokens of which each is the one of a few draws with the most matching pairs behind it."""
    ids: list[int] = []
    for _ in range(n):
        few = RNG.integers(0, 1000, draws)
        before = np.array(ids[-key.pair_spec.farthest :], dtype=np.int64)
        levels = [matching_pairs(pair_words(before, np.full(len(before), v)), key.pair_key, subkey).sum() for v in few]
        ids.append(int(few[int(np.argmax(levels))]))
    return np.array(ids)


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
    key = key_of()
    ids = RNG.integers(0, 12, n)  # many pairs are repeated
    matches = {(a, b): bool(matching_pairs(np.array([pair_words(a, b)]), key.pair_key)[0]) for a in ids for b in ids}

    def tail(first: int, last: int) -> tuple[float, int]:
        inside = range(first, min(last, n))
        pairs = {(int(ids[i]), int(ids[j])) for j in inside for i in inside if 1 <= j - i <= 4}
        return binomial_tail(sum(matches[pair] for pair in pairs), len(pairs)), len(pairs)

    units = [FIRST_UNIT << level for level in range(20) if FIRST_UNIT << level < n]
    found = [(2 * tail(0, n)[0], 0, n)]
    for unit in units:
        lengths = range(1 if unit == FIRST_UNIT else MIN_UNITS, MAX_UNITS + 1)
        spans = [(b * unit, (b + of) * unit) for b in range(-(-n // unit)) for of in lengths if (b + of - 1) * unit < n]
        parts = [(*tail(*span), *span) for span in spans]
        number = sum(pairs > 0 for _, pairs, _, _ in parts)
        found += [(p * 2 * len(units) * number, first, min(last, n)) for p, _, first, last in parts]
    best = PairTest(key, tokens_of(ids)).best_part(None)
    assert best.p_value == pytest.approx(min(1.0, min(found)[0]), rel=1e-9)


def test_levels_of_tokens_count_pairs_on_both_sides() -> None:
    key, ids = key_of(), RNG.integers(0, 1000, 30)
    signs = {
        (i, j): 1 if matching_pairs(np.array([pair_words(ids[i], ids[j])]), key.pair_key)[0] else -1
        for j in range(30)
        for i in range(max(0, j - 4), j)
    }
    expected = [sum(sign for pair, sign in signs.items() if place in pair) for place in range(30)]
    assert PairTest(key, tokens_of(ids)).net_matches(None).tolist() == expected


@pytest.mark.parametrize("distinct", [4, 40, 900])
def test_p_values_hold_their_level_for_any_text(distinct: int) -> None:
    # 2,000 keys on one text, repetitive or not; false alarms: below 1e-6 by the Poisson tail at each level
    tokens = tokens_of(RNG.integers(0, distinct, 120))
    p = np.array([PairTest(key_of(secret), tokens).best_part(None).p_value for secret in range(2000)])
    for level, most in ((0.1, 276), (0.01, 46), (0.001, 15), (1e-5, 4)):
        assert (p <= level).sum() < most


@pytest.mark.parametrize("edit", ["none", "deletion", "insertion"])
def test_the_mark_survives_edits(edit: str) -> None:
    key = key_of()
    ids = marked(key, 200)
    if edit == "deletion":
        ids = ids[RNG.random(200) > 0.2]
    if edit == "insertion":
        ids = np.insert(ids, RNG.integers(0, 200, 40), RNG.integers(0, 1000, 40))
    assert PairTest(key, tokens_of(ids)).best_part(None).p_value < 1e-6


def test_spans_are_the_marked_parts_of_their_sub_keys() -> None:
    key = key_of(subkeys=64)
    parts = [RNG.integers(0, 1000, 300), marked(key, 160, 7), RNG.integers(0, 1000, 200), marked(key, 160, 50)]
    found = PairTest(key, tokens_of(np.concatenate(parts))).spans(1e-4)
    assert [number for number, _ in found] == [7, 50]
    for (_, span), first in zip(found, (300, 660), strict=True):
        assert abs(span.first - first) <= 48
        assert abs(span.last - first - 160) <= 48
    assert PairTest(key_of(1, subkeys=64), tokens_of(np.concatenate(parts))).spans(1e-4) == []


@pytest.mark.parametrize("draws", [8, 16])  # with 16, the p-values of the larger parts are below the smallest float
def test_touching_parts_are_one_span_with_the_smallest_of_their_p_values(draws: int) -> None:
    key = key_of()
    ids = [RNG.integers(0, 1000, 208), marked(key, 816, draws=draws), RNG.integers(0, 1000, 400)]
    tokens = tokens_of(np.concatenate(ids))
    # no one part has just these tokens
    parts = sorted(PairTest(key, tokens).passing_parts(None, 1e-4), key=lambda span: span.first)
    assert [(span.first, span.last) for span in parts] == [(208, 256), (256, 1024)]
    ((_, span),) = PairTest(key, tokens).spans(1e-4)
    assert (span.first, span.last) == (208, 1024)
    assert span.p_value == min(part.p_value for part in parts)


def test_touching_spans_of_different_sub_keys_stay_apart() -> None:
    key = key_of(subkeys=64)
    found = PairTest(key, tokens_of(np.concatenate([marked(key, 256, 7), marked(key, 256, 50)]))).spans(1e-4)
    assert [(number, span.first, span.last) for number, span in found] == [(7, 0, 256), (50, 256, 512)]


def test_the_sub_key_is_found_and_named() -> None:
    key = key_of(subkeys=256)
    test = PairTest(key, tokens_of(marked(key, 150, 201)))
    assert test.ranked_subkeys()[0] == 201
    assert test.confidence(201, test.best_part(201)) > 0.999
    assert test.confidence(200, test.best_part(201)) < 0.001


def test_a_text_too_short_or_too_repetitive_is_uncertain() -> None:
    for ids, limit in ((RNG.integers(0, 1000, 0), "empty"), (RNG.integers(0, 1000, 20), "short")):
        assert PairTest(key_of(), tokens_of(ids)).uncertain_because(1.0, 1e-4) == limit
    assert PairTest(key_of(), tokens_of(np.tile([1, 2, 3], 100))).uncertain_because(1.0, 1e-4) == "repetitive"
    assert PairTest(key_of(), tokens_of(RNG.integers(0, 1000, 300))).uncertain_because(1.0, 1e-4) is None


def test_ids_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(VocabularyMismatch):
        PairTest(key_of(), tokens_of(np.array([5, 1000])))


def test_texts_of_the_built_in_model_through_detector_and_keyring() -> None:
    keys = [WatermarkKey.generate(subkeys=number) for number in (1, 16)]
    detector = Detector(keys[0])
    text = "The old man walked to the house. " * 3
    detection = detector.detect(text)
    assert detection.pairs
    assert (detection.pairs.scored > 0, detection.position, detection.subkey) == (True, None, None)
    assert detection.green_fraction == detection.pairs.matched / detection.pairs.scored
    assert sum(token.matched is True for token in detector.tokens(text, detection)) == detection.num_tokens_matched
    ring = Keyring([*keys, WatermarkKey.generate(rule="position")])
    assert ring.detect(text).keys_tested == 3
    with pytest.raises(SettingsError, match="position rule"):
        Detector(WatermarkKey.generate(rule="position")).spans(text)
