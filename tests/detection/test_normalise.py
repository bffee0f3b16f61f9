"""Disguises are undone, honest text of any script stays unchanged, and the p-value pays for both tries."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgmark.detection.detector import Detector
from dgmark.detection.normalise import STEPS, nfc, normalise, remove_invisible
from dgmark.errors import MissingExtra, SettingsError
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_text

ALL = tuple(STEPS)


@pytest.mark.parametrize(
    ("step", "disguised", "plain"),
    [
        ("nfc", "cafe\u0301", "café"),
        ("invisible", "wa\u200bter\ufeffma\u00adrk\u202e", "watermark"),
        ("invisible", "w\u200da\u200ct", "wat"),
        ("invisible", "w\u034fa\u061ct\ufe00e\ufe0fr\ufff9m\ufffba\U000e0100r\U000e01efk", "watermark"),
        ("homoglyphs", "the wаter оf Loсh", "the water of Loch"),
        ("quotes", "“It’s”, „so‟ «he» ‹said›", '"It\'s", "so" "he" \'said\''),
        ("whitespace", "a\u00a0b\u2003 c\t\td\r\ne\u2028f\rg", "a b c d\ne\nf\ng"),
    ],
)
def test_each_step_undoes_its_disguise(step: str, disguised: str, plain: str) -> None:
    assert normalise(disguised, [step]) == (plain, (step,))
    assert normalise(plain, [step]) == (plain, ())


@pytest.mark.parametrize("text", ["война и мир", "ο λόγος", "A plain line.", "क्‍ष", "👩‍👩‍👧", "x² café"])
def test_honest_text_stays(text: str) -> None:
    assert normalise(text, ALL) == (text, ())


@given(st.text(max_size=40))
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once, _ = normalise(text, ["nfc", "invisible", "quotes", "whitespace"])
    again, _ = normalise(once, ["invisible", "quotes", "whitespace"])
    assert again == once


def test_without_the_table_of_look_alikes_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confusable_homoglyphs", None)
    with pytest.raises(MissingExtra, match=r"\[normalise\]"):
        normalise("wаter", ["homoglyphs"])


def detector_of(normalised: tuple[str, ...] = ALL) -> Detector:
    return Detector(known_key("words"), tokenizer=builtin_tokenizer(), normalise=normalised)


@pytest.mark.parametrize(
    "disguise",
    [
        lambda t: t.replace(" ", " \u200b"),
        lambda t: t.replace("a", "а").replace("e", "е"),
        lambda t: t.replace(" ", "\u00a0"),
    ],
    ids=["zero-width", "homoglyphs", "no-break spaces"],
)
def test_a_disguised_mark_is_found_and_the_result_says_how(disguise) -> None:  # type: ignore[no-untyped-def]
    text = disguise(marked_text(known_key("words"), 120))
    assert detector_of(()).detect(text).verdict == "not_detected"
    found = detector_of().detect(text)
    assert found.verdict == "watermarked"
    assert len(found.normalised) == 1


def test_both_tries_are_paid_for_where_there_are_two() -> None:
    plain = marked_text(known_key("words"), 100)
    undisguised = detector_of(()).detect(plain)
    assert detector_of().detect(plain) == undisguised
    quoted = plain + "\u00a0"
    found = detector_of().detect(quoted)
    assert found.normalised == ()  # found as it is
    assert found.p_value == pytest.approx(2 * detector_of(()).detect(quoted).p_value)


def test_ids_are_never_changed_and_ranges_exclude_normalisation() -> None:
    ids = list(range(300, 380))
    assert detector_of().detect(ids) == detector_of(()).detect(ids)
    with pytest.raises(SettingsError, match="ranges refer to the unchanged text"):
        detector_of().detect("some text", only=[(0, 4)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\ufe0fb", "ab"),
        ("\u2764\ufe0f \u2764\ufe0e", "\u2764\ufe0f \u2764\ufe0e"),
        ("\u2764\ufe0fx", "\u2764x"),
        ("\ufe0f\ufe0fx\ufe0f", "x"),
        ("\ufe0f", "\ufe0f"),
    ],
)
def test_variation_selectors_are_removed_beside_letters_alone(text: str, expected: str) -> None:
    assert remove_invisible(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\ufe0f", "\u0315\u0300", "\u200d", "a\ufe0f", "\u0430a", "\u00a0", "\r", "\u1161"])
@pytest.mark.parametrize("step", sorted(STEPS))
def test_no_step_takes_the_square_of_a_texts_length(step: str, unit: str) -> None:
    """300,000 signs of a kind: what grows with their square would take hours."""
    assert isinstance(STEPS[step](unit * 300_000), str)


def test_stacked_marks_are_left_and_a_few_are_put_in_order() -> None:
    assert nfc("e\u0301") == "\u00e9"
    assert nfc("a\u0315\u0300") == "\u00e0\u0315"
    stacked = "a" + "\u0315\u0300" * 40 + "e\u0301"
    assert nfc(stacked) == stacked[:-2] + "\u00e9"
