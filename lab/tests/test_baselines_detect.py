"""The baselines' detectors: exact nulls by enumeration, KGW in transformers and MarkLLM, levels, odd texts."""

import itertools
import math
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from lab_support import CASES
from numpy.typing import NDArray
from scipy import stats
from transformers import PretrainedConfig, WatermarkDetector, WatermarkingConfig
from transformers.generation.logits_process import WatermarkLogitsProcessor

import dgmark_lab.baselines.cdmark as cdmark
import dgmark_lab.baselines.green_lists as green_lists
from dgmark import Detection, Detector, WatermarkKey
from dgmark.errors import SettingsError
from dgmark_lab.baselines import BASELINES
from dgmark_lab.baselines.pattern_mark import (
    ENOUGH,
    Draw,
    RandomParts,
    _standard_score,
    count_alternating,
    published_tail,
    redrawn_p,
)
from dgmark_lab.baselines.prf import HashKey, states, threshold, uniform_bits
from dgmark_lab.baselines.published import PublishedFigures, PublishedTest, Score
from dgmark_lab.baselines.tango import colour_of, unit_embeddings
from dgmark_lab.rule_keys import rule_key
from support.known_keys import builtin_tokenizer, figures_of, known_key
from support.unchecked import unchecked
from support.unmarked_texts import texts

KEY = known_key("baselines")
VOCAB = KEY.spec.table_size
FORMS: dict[str, tuple[str, dict[str, object]]] = CASES["forms of baselines"]


def key_of(form: str, key: WatermarkKey = KEY) -> WatermarkKey:
    name, options = FORMS[form]
    return rule_key(name, key, **options)


def score(key: WatermarkKey, ids: NDArray[np.int64], positions: NDArray[np.int64], fpr: float) -> Score:
    test: type[PublishedTest] = key.rule.test()
    return test.scored(key, ids, positions, fpr)


def detect(form: str, content: str | list[int] | NDArray[np.int64], fpr: float = 1e-4) -> Detection:
    return Detector(key_of(form), fpr=fpr, tokenizer=builtin_tokenizer()).detect(content)


# ---- PATTERN-MARK ----


@pytest.mark.parametrize("length", [2, 3, 4, 5])
@pytest.mark.parametrize("tokens", [1, 2, 4, 9, 12])
def test_the_law_of_alternating_windows_is_that_of_all_bit_strings(tokens: int, length: int) -> None:
    targets = {"".join("01"[(place + start) % 2] for place in range(length)) for start in (0, 1)}
    strings = ["".join(bits) for bits in itertools.product("01", repeat=tokens)]
    counts = np.array([sum(s[i : i + length] in targets for i in range(tokens - length + 1)) for s in strings])
    for matched in range(max(tokens - length + 2, 1)):
        assert published_tail(tokens, length, matched) == pytest.approx(float(np.mean(counts >= matched)), rel=1e-12)
    columns = np.array([[int(bit) for bit in s] for s in strings], dtype=np.uint8).T
    assert np.array_equal(count_alternating(columns, length), counts)


@pytest.mark.parametrize("length", [2, 3, 5])
def test_the_z_of_alternating_windows_has_variance_one(length: int) -> None:
    columns = np.array(list(itertools.product((0, 1), repeat=11)), dtype=np.uint8).T
    counts = count_alternating(columns, length)
    z = np.array([_standard_score(11, length, int(count)) for count in counts])
    assert (z.mean(), z.var()) == (pytest.approx(0, abs=1e-12), pytest.approx(1, rel=1e-9))


# ---- p-values by re-drawn keys ----

IDS = np.arange(50, dtype=np.int64)


@pytest.mark.parametrize(
    ("name", "options", "ids", "lag"),
    [
        ("pattern-mark", {}, [10, 11, 10, 11, 12, 13, 10, 11, 10, 11, 12, 13, 10], 1),
        ("tango", {"colours": "hash", "classes": 2}, [10, 11, 12, 13, 10, 12, 11, 11], 2),
    ],
    ids=["pattern-mark", "tango"],
)
def test_the_p_value_by_rank_is_the_share_of_all_colourings(
    name: str, options: dict[str, Any], ids: list[int], lag: int
) -> None:
    """4 distinct tokens have 16 colourings; drawing stops after ten keys that match as often."""
    colours = np.array(list(itertools.product((0, 1), repeat=4)))
    pairs = list(zip(np.array(ids) - 10, np.array(ids[lag:]) - 10, strict=False))
    if lag == 1:  # each window counts where its tokens differ
        hits = [colours[:, one] != colours[:, other] for one, other in pairs]
    else:  # each pair counts once, in either order
        hits = [colours[:, one] == colours[:, other] for one, other in {(min(pair), max(pair)) for pair in pairs}]
    counts = np.sum(hits, axis=0)
    for number in range(6):
        key = rule_key(name, known_key(f"colouring {number}"), **options)
        found = score(key, np.array(ids), np.arange(len(ids)), 1e-3)
        share = float(np.mean(counts >= found.matched))
        assert abs(found.p_value - share) < 0.5 * share + 0.3


def draws_for(name: str) -> Draw:
    random = RandomParts(name, IDS, IDS)
    return lambda _first, keys: random.draw(len(IDS), keys).sum(axis=0, dtype=np.int64)


@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.02])
def test_the_p_value_by_rank_holds_its_level_with_early_stopping(alpha: float) -> None:
    """2,000 null keys; the share may exceed alpha by 4 standard errors (false alarm about 1e-4)."""
    rng = np.random.default_rng(0)
    with unchecked():
        p = [
            redrawn_p(int(rng.integers(0, 2, 50, dtype=np.uint8).sum()), draws_for(f"level {k}"), most=400)[0]
            for k in range(2000)
        ]
    share = np.mean(np.array(p) <= alpha)
    assert share <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / 2000)
    assert share > 0.4 * alpha  # and is not far too small: match counts take few values, so ties cost some


def test_drawing_stops_early_or_at_the_most_draws() -> None:
    hopeless = redrawn_p(0, draws_for("zero"), most=10**9)
    assert hopeless == (1.0, ENOUGH)
    best = redrawn_p(50, draws_for("ones"), most=999)
    assert best == (1 / 1000, 999)


# ---- green lists ----


@pytest.mark.parametrize("gamma", [0.5, 0.25])
def test_kgw_counts_and_scores_as_the_detector_of_transformers_does(
    gamma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = PretrainedConfig.from_dict({"vocab_size": VOCAB, "bos_token_id": 1})
    settings = WatermarkingConfig(greenlist_ratio=gamma, bias=2.0, seeding_scheme="lefthash", context_width=1)
    processor: Any = WatermarkLogitsProcessor(VOCAB, "cpu", **settings.to_dict())

    def torch_lists(
        _hash_key: object, contexts: NDArray[np.int64], tokens: NDArray[np.int64], share: float
    ) -> NDArray[np.bool_]:
        assert share == gamma
        pairs = zip(contexts.tolist(), tokens.tolist(), strict=True)
        return np.array([t in processor._get_greenlist_ids(torch.tensor([c])) for c, t in pairs])

    monkeypatch.setattr(green_lists, "is_green", torch_lists)
    theirs: Any = WatermarkDetector(config, "cpu", settings, ignore_repeated_ngrams=True)
    detector = Detector(rule_key("kgw", KEY, gamma=gamma), tokenizer=builtin_tokenizer())
    for number in range(3):
        ids = np.random.default_rng(number).integers(4, 40, 150)  # few tokens, so that pairs repeat
        expected = theirs(torch.from_numpy(ids)[None], return_dict=True)
        found = detector.detect(ids)
        assert found.num_tokens_scored == expected.num_tokens_scored[0] < 149
        assert found.num_tokens_matched == expected.num_green_tokens[0]
        assert found.z_score == pytest.approx(expected.z_score[0], rel=1e-9)
        assert figures_of(found, PublishedFigures).p_published == pytest.approx(
            float(stats.norm.sf(expected.z_score[0])), rel=1e-6
        )


@pytest.mark.parametrize("repeated", [False, True])
def test_kgw_scores_as_markllm_does_by_its_green_lists(repeated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    markllm = pytest.importorskip("markllm.watermark.kgw.kgw")
    model = types.SimpleNamespace(model=None, tokenizer=None, vocab_size=VOCAB, device="cpu", gen_kwargs={})
    theirs = markllm.KGW(None, model)

    def its_lists(_key: object, contexts: NDArray[np.int64], tokens: NDArray[np.int64], _: float) -> NDArray[np.bool_]:
        pairs = zip(contexts.tolist(), tokens.tolist(), strict=True)
        return np.array([t in theirs.utils.get_greenlist_ids(torch.tensor([c])) for c, t in pairs])

    monkeypatch.setattr(green_lists, "is_green", its_lists)
    dice = np.random.default_rng(0)
    ids = dice.integers(4, 12, 150) if repeated else dice.permutation(VOCAB)[:150]
    expected, _ = theirs.utils.score_sequence(torch.from_numpy(ids))
    found = score(rule_key("kgw", KEY), ids, np.arange(150), 0.01)
    # it counts repeated pairs, as DMark does
    of_all = stats.norm.isf(score(rule_key("dmark", KEY), ids, np.arange(150), 0.01).p_published)
    assert of_all == pytest.approx(expected, rel=1e-9)
    assert (found.z_score == pytest.approx(expected, rel=1e-9)) is not repeated


def lr_dwm_by_hand(
    key: WatermarkKey, ids: list[int], positions: list[int], gamma: float
) -> tuple[int, int, set[tuple[int, int, int]]]:
    """How many tokens have both neighbours, the sum of their scores (both lists 1, one 0, none -1), and the entries."""
    lists = {side: HashKey.of(key, f"lr-dwm/{name}") for side, name in ((-1, "left"), (1, "right"))}
    at, scores, green = dict(zip(positions, ids, strict=True)), [], set()
    for place, token in at.items():
        if place - 1 in at and place + 1 in at:
            scores.append(-1)
            for side, which in lists.items():
                bits = uniform_bits(states(which, np.array([at[place + side]])), np.array([token]))[0]
                if bits < threshold(gamma):
                    scores[-1] += 1
                    green.add((side, at[place + side], token))
    return len(scores), sum(scores), green


@pytest.mark.parametrize("gamma", [0.5, 0.25])
def test_lr_dwm_scores_as_published_and_its_p_value_is_that_of_all_lists(gamma: float) -> None:
    # with repeats, a gap at place 7, and so tokens without a neighbour at 6, 8 and both ends
    ids, positions = [5, 7, 5, 7, 5, 9, 4, 7, 5, 7], [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]
    for number in range(8):
        key = known_key(f"lists {number}")
        tokens, total, green = lr_dwm_by_hand(key, ids, positions, gamma)
        found = score(rule_key("lr-dwm", key, gamma=gamma), np.array(ids), np.array(positions), 1e-3)
        z = (total - tokens * (2 * gamma - 1)) / (12 * gamma * (1 - gamma)) ** 0.5
        assert found.p_published == pytest.approx(stats.norm.sf(z), rel=1e-9)
        # each once: 5 after 7, 7 after 5 and 9 after 5; 5 before 7, 7 before 5, 5 before 9 and 9 before 4
        assert (found.scored, found.matched) == (7, len(green))
        exact = sum(
            math.prod(gamma if bit else 1 - gamma for bit in bits)
            for bits in itertools.product((0, 1), repeat=found.scored)
            if sum(bits) >= found.matched
        )
        assert found.p_value == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("form", ["kgw", "unigram", "gloaguen", "dmark", "lr-dwm", "cdmark"])
def test_the_exact_test_counts_each_pair_once(form: str) -> None:
    ids = np.random.default_rng(2).integers(4, 300, 120)
    once = score(key_of(form), ids, np.arange(120), 0.01)
    places = np.concatenate([np.arange(120) + 130 * n for n in range(3)])
    again = score(key_of(form), np.tile(ids, 3), places, 0.01)
    assert (again.scored, again.matched, again.p_value) == (once.scored, once.matched, once.p_value)
    assert 0 < once.matched < once.scored


def test_a_pair_across_a_special_token_is_no_pair() -> None:
    ids = [10, 11, 3, 12, 13, 14]
    assert builtin_tokenizer().special_ids >= {3}
    assert detect("kgw", ids).num_tokens_scored == 3
    assert detect("gloaguen, both sides", ids).num_tokens_scored == 1
    assert detect("gloaguen, two left", ids).num_tokens_scored == 1


# ---- CDMArk ----


def test_cdmark_correlates_as_published() -> None:
    """The columns of an orthonormal basis of centred normal vectors, times sqrt(vocabulary); here there is one."""
    state = states(HashKey.of(KEY, "cdmark"), np.zeros(1, dtype=np.int64))
    uniform = (uniform_bits(state, np.arange(VOCAB)) + 0.5) / 2.0**53
    normal = torch.from_numpy(stats.norm.ppf(uniform))[:, None]
    basis, triangle = torch.linalg.qr(normal - normal.mean(0))
    vector = (basis * triangle.sign() * VOCAB**0.5)[:, 0].numpy()
    ids = np.random.default_rng(0).integers(4, 40, 150)
    found = score(key_of("cdmark"), ids, np.arange(150), 0.01)
    z = sum(vector[token] for token in ids) / 150**0.5
    assert found.p_published == pytest.approx(stats.norm.sf(z), rel=1e-9)
    once = vector[sorted(set(ids.tolist()))]
    assert (found.scored, found.matched) == (len(once), int((once > 0).sum()))
    assert found.z_score == pytest.approx(once.sum() / len(once) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("message", [[1], [1, -1, -1]])
def test_cdmarks_p_value_is_the_tail_over_keys_for_any_message(message: list[int]) -> None:
    """12 tokens with weights; 20,000 keys with a vector for each bit. Fails with chance 1e-7 if it is the tail."""
    weights = np.array([0, 5, 1, 0, 2, 1, 0, 0, 1, 3, 1, 0])
    normal = np.random.default_rng(0).standard_normal((20_000, 12, len(message)))
    basis, triangle = np.linalg.qr(normal - normal.mean(1, keepdims=True))
    basis *= np.sign(np.diagonal(triangle, axis1=1, axis2=2))[:, None]  # LAPACK's signs are not uniform
    totals = np.einsum("kvm,m,v->k", basis, message, weights) * (12 / len(message)) ** 0.5
    assert stats.kstest([cdmark.tail(weights, total) for total in totals], "uniform").pvalue > 1e-7
    assert cdmark.tail(weights, 1e9) < 1e-200
    assert cdmark.tail(np.ones(12, dtype=np.int64), 0.0) == cdmark.tail(weights, -1e9) == 1


# ---- TANGO ----


def test_tangos_colours_are_equal_parts_of_the_vocabulary_along_a_direction_of_the_embeddings() -> None:
    rows, colours = unit_embeddings("storyteller"), colour_of(key_of("tango"))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    bits = uniform_bits(states(HashKey.of(KEY, "tango"), np.zeros(1, dtype=np.int64)), np.arange(rows.shape[1]))
    order = np.argsort(rows @ stats.norm.ppf((bits + 0.5) / 2.0**53))
    assert np.bincount(colours).tolist() == [2730, 2731, 2731]
    assert (np.diff(colours[order].astype(int)) < 0).sum() <= 2  # float32 may swap two neighbours at a cut
    assert (colour_of(key_of("tango", known_key("another"))) != colours).mean() > 0.5


def test_tango_counts_each_pair_once_and_publishes_the_z_of_all() -> None:
    key = rule_key("tango", KEY, lag=2)
    ids, positions = np.array([5, 9, 7, 9, 5, 9, 8, 6]), np.array([0, 1, 2, 3, 4, 5, 6, 9])
    colour = colour_of(key)
    pairs = [(5, 7), (9, 9), (7, 5), (9, 9), (5, 8)]
    hits = [(int(colour[one]) + int(colour[other])) % 3 == 0 for one, other in pairs]
    found = score(key, ids, positions, 0.01)
    assert (found.scored, found.matched) == (3, hits[0] + hits[1] + hits[4])
    assert found.z_score == pytest.approx((sum(hits) - 5 / 3) / (10 / 9) ** 0.5)
    assert found.p_published == pytest.approx(stats.binom.sf(sum(hits) - 1, 5, 1 / 3))


def test_tango_needs_embeddings_of_the_keys_vocabulary() -> None:
    with pytest.raises(SettingsError, match="has embeddings of 8192 tokens, and the key is for 32: name the model"):
        colour_of(rule_key("tango", known_key("small", table_size=32), embeddings="storyteller"))


# ---- levels: what has no mark is called marked no more often than stated ----

PAIRS = 250
ALPHAS = (0.1, 0.01)
# the largest number of p-values at or below alpha of a true level is passed with chance 1e-9; with 15 forms, 5 kinds
# and 2 levels a correct detector fails here with chance 1.5e-7, were the seeds drawn anew
MAX_HITS = {alpha: int(stats.binom.isf(1e-9, PAIRS, alpha)) for alpha in ALPHAS}


def pairs_of(kind: str) -> Iterator[tuple[WatermarkKey, NDArray[np.int64]]]:
    dice = np.random.default_rng(3)
    turns = [dice.integers(4, 40, 180) for _ in range(PAIRS)] if kind == "random ids" else texts(kind, 180)
    for number in range(PAIRS):
        yield known_key(f"baseline level {number}"), turns[number % len(turns)]


def p_values(form: str, kind: str) -> NDArray[np.float64]:
    """Conditional and published p-values of text without a mark."""
    special = np.array(sorted(builtin_tokenizer().special_ids))
    found = []
    with unchecked():
        for key, ids in pairs_of(kind):
            positions = (~np.isin(ids, special)).nonzero()[0]
            one = score(key_of(form, key), ids[positions], positions, 0.01)
            found.append((one.p_value, one.p_published))
    return np.array(found)


@pytest.mark.cover(1)
@pytest.mark.parametrize("kind", ["looped text", "CSV", "Python code", "prose", "random ids"])
@pytest.mark.parametrize("form", FORMS)
def test_the_conditional_p_value_holds_its_level(form: str, kind: str) -> None:
    p = p_values(form, kind)[:, 0]
    assert {alpha: int((p <= alpha).sum()) for alpha in ALPHAS if (p <= alpha).sum() > MAX_HITS[alpha]} == {}
    assert 0 < p.min() <= p.max() <= 1


@pytest.mark.parametrize(
    ("form", "kind"),
    [("unigram", "looped text"), ("pattern-mark", "CSV"), ("dmark", "CSV"), ("cdmark", "looped text")],
)
def test_the_check_fails_for_published_p_values_that_count_repeats(form: str, kind: str) -> None:
    assert (p_values(form, kind)[:, 1] <= 0.01).sum() > MAX_HITS[0.01]


# ---- marked text, odd text ----


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", ["", " ", "word", "a b", "\ud800", "😀" * 5, "é\u200b\x00"], ids=ascii)
def test_a_very_short_text_is_uncertain(form: str, content: str) -> None:
    found = detect(form, content)
    assert found.verdict == "uncertain"
    assert 0 < found.p_value <= 1
    assert found.uncertain_because == ("short" if found.num_tokens_scored else "empty")
    assert found.summary.startswith("The test is inconclusive for this text")
    assert found.uncertain_because == "empty" or "of tokens, which are" in found.summary


@pytest.mark.parametrize("form", [form for form in FORMS if form != "gumbel"])
def test_one_token_for_ever_shows_nothing(form: str) -> None:
    found = detect(form, [500] * 3000)
    assert found.verdict == "uncertain"


@pytest.mark.parametrize("form", FORMS)
def test_a_long_text_is_scored(form: str) -> None:
    ids = np.random.default_rng(1).integers(4, 8000, 20_000)
    found = detect(form, ids)
    assert (found.verdict, found.rule) == ("not_detected", FORMS[form][0])
    assert 0 < figures_of(found, PublishedFigures).p_published <= 1
    assert found.key_fingerprint == key_of(form).fingerprint


@pytest.mark.parametrize("name", BASELINES)
def test_a_keyless_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"but {name} needs a secret"):
        rule_key(name, known_key("keyless", grouping="token-id"))


# ---- names and options ----


@pytest.mark.parametrize(("name", "options", "message"), CASES["refused options of baselines"])
def test_invalid_options_are_refused(name: str, options: dict[str, object], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        rule_key(name, KEY, **options)
