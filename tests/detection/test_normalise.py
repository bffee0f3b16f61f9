"""Disguises are undone, honest text of any script stays unchanged, and the p-value pays for both tries."""

import sys
import textwrap

import pytest

from dgmark.checkpoint.folder import BUILTIN
from dgmark.detection import sentences as words
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.normalise import STEPS, WRAPPING, nfc, normalise, unwrap
from dgmark.errors import MissingExtra, SettingsError
from support.known_keys import bound_key, builtin_tokenizer, known_key
from support.marked_texts import marked_text
from support.unmarked_texts import PROSE

ALL = tuple(STEPS)


@pytest.mark.parametrize(
    ("step", "disguised", "plain"),
    [
        ("nfc", "cafe\u0301", "café"),
        ("invisible", "wa\u200bter\ufeffma\u00adrk\u202e", "watermark"),
        ("invisible", "w\u200da\u200ct", "wat"),
        ("invisible", "w\u034fa\u061ct\ufe00e\ufe0fr\ufff9m\ufffba\U000e0100r\U000e01efk", "watermark"),
        # variation selectors are removed beside letters alone
        ("invisible", "a\ufe0fb", "ab"),
        ("invisible", "\u2764\ufe0fx", "\u2764x"),
        ("invisible", "\ufe0f\ufe0fx\ufe0f", "x"),
        ("homoglyphs", "the wаter оf Loсh", "the water of Loch"),
        ("homoglyphs", "А fox; Іt and һе, 7 о р. А", "A fox; It and he, 7 o p. A"),  # words of look-alikes alone
        ("homoglyphs", "wаr. Он сказал: а он и война. Wаr", "war. Он сказал: а он и война. War"),
        ("quotes", "“It’s”, „so‟ «he» ‹said›", '"It\'s", "so" "he" \'said\''),
        ("whitespace", "a\u00a0b\u2003 c\t\td\r\ne\u2028f\rg", "a b c d\ne\nf\ng"),
    ],
)
def test_each_step_undoes_its_disguise(step: str, disguised: str, plain: str) -> None:
    assert normalise(disguised, [step]) == (plain, (step,))
    assert normalise(plain, [step]) == (plain, ())


@pytest.mark.parametrize(
    "text",
    [
        "война и мир",
        "а",
        "word: он, а не War",
        "ο λόγος",
        "A plain line.",
        "क्‍ष",
        "👩‍👩‍👧",
        "x² café",
        "\u2764\ufe0f \u2764\ufe0e",
        "\ufe0f",
    ],
)
def test_honest_text_stays(text: str) -> None:
    assert normalise(text, ALL) == (text, ())


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


# --- hard wrapping

WILLOWS = (PROSE / "willows.txt").read_text()


def wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in text.split("\n"))


@pytest.mark.parametrize("width", [60, 72, 76])
def test_unwrapping_restores_what_was_wrapped_and_no_more(width: int) -> None:
    text = WILLOWS.replace("--", ", ")[:3000].rsplit("\n", 1)[0]
    found = unwrap(wrapped(text, width))
    joined = [old for old, new in zip(text, found, strict=True) if old != new]
    # nothing shows that a paragraph ends where its last line is full; 2 of 11 do so at 60 columns
    assert joined == ["\n"] * len(joined)
    assert len(joined) <= 2 < text.count("\n")
    hyphens = textwrap.fill(WILLOWS[:900], width)
    assert len(unwrap(hyphens)) == len(hyphens)


@pytest.mark.parametrize(
    "text",
    [
        WILLOWS,
        "",
        "\n" * 99,
        "Two lines of the usual width are not enough to say that somebody\nhas wrapped them: chance does it, too.",
        "\n".join(f"A list with {'many ' * (n % 7)}points" for n in range(40)),
        "\n".join(f"{'x' * 20},{n:030},{'y' * 10}" for n in range(100, 140)),
        "\n".join(["def function(argument):", "    return argument", "", "print(function(1))"] * 20),
        "\n\n".join(["A paragraph of one line that is about as wide as any other here."] * 20),
    ],
    ids=["prose", "empty", "blank", "two lines", "list", "table", "code", "paragraphs"],
)
def test_what_is_not_wrapped_stays(text: str) -> None:
    assert unwrap(text) == text


@pytest.mark.parametrize("width", [60, 72])
def test_a_wrapped_mark_is_found_and_both_readings_are_paid_for(width: int) -> None:
    key = bound_key("words", BUILTIN, rule="bigram")
    plain = marked_text(key, 60)
    detector, text = Detector(key), wrapped(plain, width)
    found, intact = detector.detect(text), detector.detect(plain)
    assert (found.verdict, found.normalised) == ("watermarked", (WRAPPING,))
    assert found.p_value == pytest.approx(2 * intact.p_value)
    assert "read as spaces" in " ".join(words.meaning(found))
    assert detector.detect_many([plain, text]) == [intact, found]
    assert detector.tokens(text, found) == detector.tokens(plain, intact)
    ring = Keyring([key, known_key("others")], tokenizer=builtin_tokenizer())
    assert ring.detect(text).p_value == pytest.approx(2 * ring.detect(plain).p_value)
    (span,), (same,) = detector.spans(text), detector.spans(plain)
    assert (span.start, span.end) == (same.start, same.end)
    assert span.p_value == pytest.approx(2 * same.p_value)


def test_a_text_that_was_marked_with_its_line_ends_is_found_by_its_first_reading() -> None:
    text = marked_text(known_key("words"), 100) + "\n" + wrapped("A few further words of no mark. " * 8, 60)
    assert unwrap(text) != text
    found = detector_of(()).detect(text)
    assert (found.verdict, found.normalised) == ("watermarked", ())


def test_a_wrapped_disguise_is_undone_in_one_reading() -> None:
    found = detector_of().detect(wrapped(marked_text(known_key("words"), 120), 72).replace(" ", "\u00a0"))
    assert (found.verdict, found.normalised, found.disguised) == ("watermarked", ("whitespace", WRAPPING), True)
