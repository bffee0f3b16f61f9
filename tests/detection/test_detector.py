"""The detector: three verdicts, any crop, ids and texts, and a detection for any text.

`test_match_null.py` tests that the p-value is exact, and `test_level.py` that it holds its level.
"""

import json
import math
import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from dgmark.detection.detector import DEFAULT_FPR, Detector, detect
from dgmark.detection.keyring import Keyring
from dgmark.detection.results.figures import PairFigures, PositionFigures
from dgmark.detection.results.sentences import matches
from dgmark.errors import SettingsError
from dgmark.watermark.position import tables_of
from support.cases import cases, data
from support.known_keys import builtin_tokenizer, figures_of, known_key
from support.marked_texts import Ids, marked_ids, marked_text
from support.unchecked import unchecked

START = 1  # of the built-in tokenizer
FIRST = 4  # the ids below are special
ROW = [
    "id", "verdict", "p_value", "z_score", "green_fraction", "num_tokens_scored", "num_tokens_matched", "fpr",
    "key_fingerprint", "guaranteed", "summary", "figures", "test", "normalised", "normalise_would_change", "spans",
    "marked_share", "keys_tested", "rule", "uncertain_because", "schema",
]  # fmt: skip


def detector_of(name: str = "detector", **options: Any) -> Detector:
    """A detector with settings, of a key with the other options."""
    of_detector = {"fpr", "phase", "max_crop", "normalise"} & options.keys()
    settings: dict[str, Any] = {name: options.pop(name) for name in of_detector}
    return Detector(known_key(name, **options), tokenizer=builtin_tokenizer(), **settings)


OPTIONS: list[dict[str, Any]] = data(__file__, "options")


def plain_ids(length: int, seed: int = 0) -> Ids:
    return np.random.default_rng(seed).integers(FIRST, 8192, size=length)


# --- the verdict ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [*OPTIONS, *data(__file__, "further_options")], ids=str)
def test_marked_ids_are_found_and_no_others(options: dict[str, Any]) -> None:
    detector, theirs = (detector_of(name, **options) for name in ("detector", "theirs"))
    found = detector.detect(marked_ids(detector.key, 200))
    assert found.verdict == "watermarked"
    assert found.p_value < 1e-8
    for unmarked in (plain_ids(200), marked_ids(theirs.key, 200)):
        found = detector.detect(unmarked)
        assert found.verdict == "not_detected"
        assert found.p_value > DEFAULT_FPR


@settings(max_examples=60)
@given(
    length=st.integers(0, 120),
    rate=st.floats(0.4, 1.0),
    exponent=st.integers(-8, -1),
    seed=st.integers(0, 1000),
    options=st.sampled_from(OPTIONS),
)
def test_the_verdict_is_watermarked_exactly_when_p_is_at_most_fpr(
    length: int, rate: float, exponent: int, seed: int, options: dict[str, Any]
) -> None:
    fpr = 10.0**exponent
    detector = detector_of(fpr=fpr, **options)
    found = detector.detect(marked_ids(detector.key, length, rate=rate, seed=seed))
    assert found.fpr == fpr
    assert (found.verdict == "watermarked") == (found.p_value <= fpr)


@pytest.mark.parametrize("fpr", [1e-4, 1e-6])
def test_a_text_is_uncertain_if_a_typical_mark_would_be_missed(fpr: float) -> None:
    for length in (0, 1, 7, *range(24, 130, 3)):
        found = detector_of(fpr=fpr).detect(np.arange(300, 300 + length))  # a binomial null, at two phases
        detectable = 2 * stats.binom.sf(np.ceil(0.75 * length) - 1, length, 0.5) <= fpr
        assert found.verdict == ("not_detected" if detectable else "uncertain"), length


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_p_value_does_not_depend_on_the_rate(options: dict[str, Any]) -> None:
    ids = marked_ids(detector_of(**options).key, 120, rate=0.7)
    found = [detector_of(fpr=fpr, **options).detect(ids) for fpr in (0.3, 1e-2, 1e-4, 1e-9, 1e-200)]
    assert len({each.p_value for each in found}) == 1
    assert len({each.verdict for each in found}) >= 2


@pytest.mark.slow
def test_a_million_tokens_have_a_verdict() -> None:
    """A mark of one in a hundred tokens, in a text whose null is far too wide to convolve."""
    detector = detector_of()
    ids = np.random.default_rng(1).integers(300, 8000, 1_000_000)
    wrong = np.flatnonzero(~tables_of(detector.key).matching(ids, np.arange(len(ids))))[::50]
    table = tables_of(detector.key).table()
    some = [np.flatnonzero(table[300:8000] == parity)[:50] + 300 for parity in (0, 1)]
    ids[wrong] = [some[at % 2][at % 50] for at in wrong]
    with unchecked():
        assert detector.detect(ids).verdict == "watermarked"
        assert detector_of("another").detect(ids).verdict == "not_detected"


# --- crops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0, 1, 16, 50, 101, 128])
@pytest.mark.parametrize(
    ("modulus", "rotation", "code_length"),
    [(2, 0, 0), (3, 0, 0), (7, 0, 0), (2, 16, 0), (3, 50, 0), (2, 0, 8), (4, 0, 32), (3, 0, 63), (2, 50, 16)],
)
def test_tokens_may_be_missing_at_the_front(modulus: int, rotation: int, code_length: int, missing: int) -> None:
    detector = detector_of(modulus=modulus, rotation=rotation, code_length=code_length, max_crop=128)
    found = detector.detect(marked_ids(detector.key, 300)[missing:])
    assert found.verdict == "watermarked"
    place, period = figures_of(found, PositionFigures), code_length or modulus
    assert (place.shift, place.shifts_tested) == ((missing, 129) if rotation else (missing % period, period))


def test_a_rotating_key_finds_no_crop_longer_than_max_crop() -> None:
    detector = detector_of(rotation=16, max_crop=64)
    assert detector.detect(marked_ids(detector.key, 400, rate=1.0)[64 + 16 :]).verdict == "not_detected"


# --- which tokens are scored ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["position", "bigram"])
@pytest.mark.parametrize("special", ["<|endoftext|>", "<|startoftext|>", "<|mdm_mask|>", "<|pad|>"])
def test_a_special_token_in_a_text_hides_nothing_of_what_follows(special: str, rule: str) -> None:
    detector = detector_of("words", rule=rule)
    text = marked_text(detector.key, 100)
    words = text.split(" ")
    salted = " ".join(words[:3]) + special + " " + " ".join(words[3:])
    found = detector.detect(salted)
    assert found.verdict == "watermarked"
    assert found.num_tokens_scored == 100


@settings(max_examples=60)
@given(
    ids=st.lists(st.integers(START, 60), max_size=40),
    modulus=st.sampled_from([2, 3, 5]),
    rotation=st.sampled_from([0, 6]),
)
def test_the_counts_are_those_of_the_definition(ids: list[int], modulus: int, rotation: int) -> None:
    detector = detector_of(modulus=modulus, rotation=rotation, max_crop=9)
    found = detector.detect(ids)
    tables = tables_of(detector.key)
    shift = figures_of(found, PositionFigures).shift
    matched = [
        tables.table((i + shift) // rotation if rotation else 0)[token] == (i + shift) % modulus
        for i, token in enumerate(ids)
        if token >= FIRST
    ]
    assert found.num_tokens_scored == len(matched)
    assert found.num_tokens_matched == sum(matched)
    assert found.green_fraction == (sum(matched) / len(matched) if matched else 0.0)
    spread = math.sqrt(len(matched) * (modulus - 1)) / modulus
    assert found.z_score == pytest.approx((sum(matched) - len(matched) / modulus) / spread if matched else 0.0)


def test_only_the_ranges_given_are_scored_at_their_positions() -> None:
    detector = detector_of(phase="start")
    ids = marked_ids(detector.key, 240, rate=1.0)
    dice = np.random.default_rng(0)
    text = np.concatenate([dice.integers(300, 8000, 101), ids[101:201], dice.integers(300, 8000, 80)])
    found = detector.detect(text, only=[(101, 151), (151, 201)])
    assert (found.num_tokens_scored, found.num_tokens_matched) == (100, 100)
    assert found.p_value < 1e-20
    assert detector.detect(text, only=[(102, 201)]).num_tokens_matched == 99


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "wrong", "message"), cases(__file__, "invalid"))
def test_an_invalid_setting_is_refused_by_name(setting: str, wrong: Any, message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        detector_of(rotation=16, **{setting: wrong})


def test_the_function_detect_takes_what_the_detector_takes() -> None:
    text = marked_text(known_key("words"), 40) + "\u00a0"
    options: Any = {"fpr": 1e-3, "phase": "start", "max_crop": 7, "normalise": ["whitespace"]}
    key, tokenizer = known_key("words", rotation=16), builtin_tokenizer()
    assert detect(text, key, tokenizer=tokenizer, **options) == detector_of("words", rotation=16, **options).detect(
        text
    )


def test_how_a_text_is_shifted_matters_for_the_keys_alone_that_it_concerns() -> None:
    shifts: dict[str, Any] = {"phase": "start", "max_crop": 7}
    pairs, positions = known_key("pairs", rule="bigram"), known_key("positions")
    ids = marked_ids(positions, 80)
    for name, value in shifts.items():
        with pytest.raises(SettingsError, match=f"{name} is no option of rule bigram") as caught:
            Detector(pairs, **{name: value})
        assert caught.value.field == name
    both, alone = Keyring([pairs, positions], **shifts), Detector(positions, **shifts)
    assert both.detect(ids).p_value == 2 * alone.detect(ids).p_value
    assert both.settings["phase"] == "start"


def test_spans_need_a_key_of_the_bigram_rule() -> None:
    detector = detector_of()
    assert detector.no_spans
    with pytest.raises(SettingsError, match="spans finds nothing, as it needs a key of rule bigram"):
        detector.spans("Once upon a time.")


# --- tokens for display --------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=60)


@given(text=any_text)
@example(text="naïve 😀 family: 👨‍👩‍👧 <|endoftext|> end")
@example(text="a lone \ud800 surrogate")
@example(text="a \ud83d\ude00 pair of surrogates, and more text after it")
@example(text="0*0*000001\U00100ff8")
def test_the_tokens_cover_the_text_in_order(text: str) -> None:
    detector = detector_of("display")
    found = detector.detect(text)
    skipped = ""
    covered = 0
    for token in detector.tokens(text, found):
        assert 0 <= token.start < token.end <= len(text)
        skipped += text[covered : token.start]
        covered = max(covered, token.end)
    skipped += text[covered:]
    # A text is shown as it was read: what its markup and line ends are made of is part of no token.
    assert not skipped or (found.normalised and not any(char.isalnum() for char in skipped))


@given(
    text=any_text,
    options=st.sampled_from([*OPTIONS, {"rotation": 4, "phase": "start"}, {"rotation": 4, "max_crop": 0}]),
)
def test_the_tokens_add_up_to_the_detection(text: str, options: dict[str, Any]) -> None:
    detector = detector_of("display", **options)
    found = detector.detect(text)
    tokens = detector.tokens(text, found)
    assert sum(token.matched is True for token in tokens) == found.num_tokens_matched
    assert sum(token.matched is not None for token in tokens) == found.num_tokens_scored
    unit, counted = matches(found)
    assert unit == ("tokens" if found.figures.pairs is None else "pairs")
    matched, scored = (int(number.replace(",", "")) for number in counted.split(" of "))
    assert found.green_fraction == (matched / scored if scored else 0.0)


# --- what is reported ----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"modulus": 3, "rotation": 8, "max_crop": 5}, {"rule": "bigram"}], ids=str)
@pytest.mark.parametrize(
    "content", ["", "some text", " sir" * 500, list(range(FIRST, 400)), np.arange(5, 900)], ids=len
)
def test_a_row_is_plain_json_and_has_the_values_of_the_detection(content: Any, options: dict[str, Any]) -> None:
    found = detector_of(**options).detect(content)
    row = found.to_row("row 7")
    assert list(row) == ROW
    assert (row["id"], row["schema"], row["summary"]) == ("row 7", 1, found.summary)
    fields = asdict(found) | {"normalised": [], "normalise_would_change": []}
    assert {name: fields[name] for name in fields if name in row} == {name: row[name] for name in row if name in fields}
    assert type(found.figures) is (PairFigures if options.get("rule") else PositionFigures)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert {type(value) for value in row.values()} <= {str, int, float, bool, list, dict, type(None)}


@pytest.mark.parametrize(("length", "rate", "warned"), [(5, 1.0, False), (300, 0.5, False), (300, 1.0, True)])
def test_a_keyless_result_is_not_guaranteed_and_a_found_mark_says_so(length: int, rate: float, warned: bool) -> None:
    detector = detector_of(grouping="token-id")
    found = detector.detect(marked_ids(detector.key, length, rate=rate))
    assert found.guaranteed is False
    assert detector_of().detect(plain_ids(9)).guaranteed is True
    assert ("keyless" in found.summary) == warned
    assert "at most 1 in" not in found.summary


@pytest.mark.parametrize(
    ("content", "verdict", "says"),
    [
        (
            marked_ids(known_key("detector"), 200),
            "watermarked",
            r"The watermark .* was found in this text\. .* at most 1 in",
        ),
        (plain_ids(200), "not_detected", r"was not found in this text\. A text without .* from a person\.$"),
        ([5, 6, 7], "uncertain", "is inconclusive for this text: with 3 tokens, .* too short"),
        ([5, 6, 7] * 200, "uncertain", "is inconclusive for this text: its 600 tokens, .* repeat each other"),
        ([5, 6, 7] * 40, "uncertain", "repeat each other"),
        (" sir" * 500, "uncertain", "its 500 tokens, .* repeat each other"),
        ([], "uncertain", "nothing that can be tested"),
    ],
    ids=["watermarked", "not_detected", "short", "repetitive", "short_and_repetitive", "one_word", "empty"],
)
def test_the_summary_states_the_verdict_and_its_reason(content: Any, verdict: str, says: str) -> None:
    found = detector_of().detect(content)
    assert found.verdict == verdict
    assert re.search(says, found.summary)
    assert (found.uncertain_because is None) == (verdict != "uncertain")
    # no summary says that a human wrote a text
    people = re.findall("human|person|author", found.summary, re.IGNORECASE)
    assert people == ([] if verdict == "watermarked" else ["person"])


@pytest.mark.parametrize("modulus", [2, 4])
@pytest.mark.parametrize("length", [10, 30, 60, 100])
def test_a_short_text_has_too_few_tokens_even_if_all_differ(modulus: int, length: int) -> None:
    detector = detector_of(modulus=modulus)
    different = list(range(FIRST, FIRST + length))
    alone = detector.detect(different).verdict == "uncertain"
    repeated = detector.detect([FIRST, FIRST + 1] * (length // 2))
    assert (repeated.verdict, repeated.uncertain_because) == ("uncertain", "short" if alone else "repetitive")


# --- any text at all -----------------------------------------------------------------------------


def check_any(text: str, options: dict[str, Any]) -> None:
    """Check what holds for the detection of every text."""
    found = detector_of("anything", **options).detect(text)
    assert 0 < found.p_value <= 1
    assert found.verdict in ("watermarked", "not_detected", "uncertain")
    assert math.isfinite(found.z_score)
    assert 0 <= found.num_tokens_matched <= found.num_tokens_scored
    json.dumps(found.to_row("x"), allow_nan=False)


@pytest.mark.slow
@settings(max_examples=200)
@given(text=any_text, options=st.sampled_from([*OPTIONS, {"modulus": 16}, {"rotation": 1, "max_crop": 12}]))
@example(text="", options={})
@example(text="\0", options={})
@example(text="😀👩‍👩‍👧‍👦🏳️‍🌈" * 20, options={})
@example(text="\ud800", options={})
@example(text="\udfff\ud800 x \udc80", options={})
@example(text="<|endoftext|>" * 50, options={})
@example(text="\u202e\u0000\ufeff\u2028\r\n\t ", options={})
@example(text="", options={"modulus": 3, "rotation": 1})
@example(text="\0" * 100, options={"rotation": 7})
@example(text="<|endoftext|><|mdm_mask|>" * 5, options={"rotation": 7})
@example(text="", options={"subkeys": 16})
@example(text="\0" * 100, options={"subkeys": 16})
def test_any_text_has_a_detection(text: str, options: dict[str, Any]) -> None:
    check_any(text, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a" * 10**6, {}),
        ("a" * 10**6, {"subkeys": 16}),
        ("word " * 200_000, {"rotation": 4096, "max_crop": 8}),
        ("\0" * 10**6, {}),
        ("é" * 500_000, {}),
    ],
    ids=["letters", "letters in pairs", "words", "NUL", "accents"],
)
def test_a_megabyte_on_one_line_has_a_detection(text: str, options: dict[str, Any]) -> None:
    check_any(text, options)
