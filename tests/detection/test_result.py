from dataclasses import replace

import pyarrow as pa
import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.results.detection import Detection, counted, verdict_sentence
from dgmark.detection.results.figures import Span
from dgmark.detection.results.sentences import heading, meaning, symbol, where
from dgmark.detection.results.words import rarity
from support.cases import cases
from support.known_keys import known_key

SPANS = [Span(start, start + 100, 40, 1e-6) for start in (0, 100, 300)]


@pytest.fixture(scope="module")
def detection() -> Detection:
    return Detector(known_key("words")).detect("")


@pytest.mark.parametrize(("p_value", "words"), cases(__file__, "rarity"))
def test_rarity_rounds_so_as_to_claim_less(p_value: float, words: str) -> None:
    assert rarity(p_value) == words


def test_found(detection: Detection) -> None:
    found = replace(detection, verdict="watermarked", p_value=1.3e-7, num_tokens_scored=300)
    found = found.with_spans(SPANS[:1], "x" * 100)
    sentence = verdict_sentence(found)
    assert sentence.startswith(f"This text carries the watermark of key {detection.key_fingerprint}. ")
    assert sentence.endswith("looks like this is at most 1 in 7 million.")
    assert verdict_sentence(found, public=True).endswith("at most 1 in 10,000.")


def test_spans_only(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", uncertain_because=None, num_tokens_scored=900)
    one, three = absent.with_spans(SPANS[:1], "x" * 400), absent.with_spans(SPANS, "x" * 400)
    assert verdict_sentence(one).startswith("A span of this text (25% of it) carries the watermark")
    assert verdict_sentence(three).startswith("3 spans of this text (75% of it) carry the watermark")
    assert "was not found" in verdict_sentence(absent)


@pytest.mark.parametrize("payload", [False, True])
def test_rows_have_types_in_arrow_whatever_they_hold(detection: Detection, payload: bool) -> None:
    found = [detection, Detector(known_key("pairs", subkeys=4)).detect("a b").with_spans(SPANS, "x" * 400)]
    rows = [one.to_row("a", payload=payload) for one in found]
    schema = Detection.arrow_schema(payload=payload)
    table = pa.Table.from_pylist(rows, schema=schema)
    assert set(rows[1]) == set(schema.names)
    assert not [name for name, kind in zip(schema.names, schema.types, strict=True) if "null" in str(kind)]
    for row, again in zip(rows, table.to_pylist(), strict=True):
        assert row["figures"].items() <= again["figures"].items()
        apart = {"spans": None, "figures": None}
        assert row | apart == {name: again[name] for name in row} | apart
        assert len(again["spans"] or ()) == len(row["spans"] or ())


def test_a_key_without_a_secret_promises_no_rarity(detection: Detection) -> None:
    keyless = replace(detection, verdict="watermarked", guaranteed=False, num_tokens_scored=300)
    for found in (keyless, replace(keyless, verdict="not_detected", spans=tuple(SPANS))):
        assert "anybody can make this mark" in verdict_sentence(found)
        assert "1 in" not in verdict_sentence(found)


def test_what_is_counted_is_called_as_the_rule_calls_it(detection: Detection) -> None:
    said = [counted(replace(detection, num_tokens_scored=number)) for number in (1, 1200)]
    assert said[0].startswith("1 token, which")
    assert said[1].startswith("1,200 tokens, which")
    groups = replace(detection, units=("group", "groups"))
    assert counted(replace(groups, num_tokens_scored=1)).startswith("1 group, which")
    assert counted(replace(groups, num_tokens_scored=2)).startswith("2 groups, which")
    assert "units" not in groups.to_row("a")


def test_absence_names_all_keys_that_were_tried(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", keys_tested=1200, num_tokens_scored=900)
    assert verdict_sentence(absent) == "No watermark of the 1,200 keys was found in this text."
    assert verdict_sentence(replace(absent, keys_tested=1, rule_title="KGW")).startswith("The KGW watermark of key ")


def test_the_words_name_whose_key_it_is_and_no_fingerprint(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", keys_tested=1, key_name="ACME", uncertain_because=None)
    found = replace(absent, verdict="watermarked", p_value=1e-9)
    part = found.with_spans([Span(100, 255, 40, 1e-6)], "x" * 1000)
    assert [heading(one) for one in (absent, found, part)] == [
        "No watermark of ACME found",
        "Watermark of ACME found",
        "Watermark of ACME found in part (15% of the text)",
    ]
    for one in (absent, found, part):
        assert "the watermark of ACME" in verdict_sentence(one).replace("The", "the")
        assert one.key_fingerprint not in verdict_sentence(one)
        assert "key_name" not in one.to_row("a")
    assert "were chosen by the assistant of ACME, or by another language model with its key." in meaning(found)[0]
    assert [symbol(one) for one in (absent, found, part)] == ["○", "●", "◐"]  # neither praise nor blame
    # which of several keys it is not, is not news
    assert heading(replace(absent, keys_tested=2)) == "No watermark found"


def test_meaning(detection: Detection) -> None:
    absent = replace(detection, verdict="not_detected", uncertain_because=None, num_tokens_scored=900)
    assert any("any other language model or from a person" in sentence for sentence in meaning(absent))
    found = replace(absent, verdict="watermarked")
    assert not any("any other language model" in sentence for sentence in meaning(found))
    for scored, short in ((0, False), (1, True), (199, True), (200, False)):
        sentences = meaning(replace(absent, num_tokens_scored=scored))
        assert any("is short" in sentence for sentence in sentences) == short
    repeated = replace(absent, verdict="uncertain", uncertain_because="repetitive", num_tokens_scored=199)
    assert not any("is short" in sentence for sentence in meaning(repeated))  # the verdict gives its own reason
    assert any("invisible" in sentence for sentence in meaning(replace(found, normalised=("invisible",))))


def test_a_text_marked_in_part_says_so_with_the_share_and_what_the_rest_may_be(detection: Detection) -> None:
    found = replace(detection, verdict="watermarked", p_value=1.3e-7, uncertain_because=None, num_tokens_scored=900)
    part = found.with_spans([Span(100, 255, 40, 1e-6)], "x" * 1000)
    assert (part.in_part, part.marked_share) == (True, 0.155)
    assert heading(part) == "Watermark found in part (15% of the text)"
    assert symbol(part) == "◐"
    assert verdict_sentence(part).startswith("A span of this text (15% of it) carries the watermark of key ")
    assert verdict_sentence(part).endswith("looks like this is at most 1 in 7 million.")
    assert part.to_row("a")["marked_share"] == 0.155
    assert any("unmarked rest: a person or another model may have written it" in one for one in meaning(part))
    assert found.with_spans([Span(4, 6, 40, 1e-6)], "a\n \nbc d").marked_share == 0.5
    for end, partly in ((799, True), (800, False)):
        assert found.with_spans([Span(0, end, 200, 1e-6)], "x" * 1000).in_part == partly
    whole = found.with_spans([Span(0, 1000, 200, 1e-6)], "x" * 1000)
    assert heading(whole) == heading(found) == "Watermark found"
    assert not any("rest" in sentence for sentence in meaning(whole))
    # nothing is known of how much is marked
    assert verdict_sentence(found.with_spans([], "x")).startswith("The watermark of key ")
    assert "how much of the text is marked is not known" in where(found.with_spans([], "x"))
    assert where(found) == ""  # spans were not looked for
