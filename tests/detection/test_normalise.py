"""Disguises are undone or named, honest text of any script stays unchanged, and p-values count both tries."""

import re
import sys
import unicodedata
from collections.abc import Callable

import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.reading.disguises import normalise as normalise_module
from dgmark.detection.reading.disguises.mapped_text import MappedText
from dgmark.detection.reading.disguises.normalise import STEPS, disguises_in, nfc, normalise
from dgmark.detection.results.detection import verdict_sentence
from dgmark.errors import MissingExtra, SettingsError
from dgmark.rows.scoring import with_spans
from support.cases import cases
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_text

ALL = tuple(STEPS)


@pytest.mark.parametrize(("step", "disguised", "plain"), cases(__file__, "undone"))
def test_each_step_undoes_its_disguise(step: str, disguised: str, plain: str) -> None:
    mapped, undone = normalise(disguised, [step])
    assert (mapped.text, undone) == (plain, (step,))
    mapped, undone = normalise(plain, [step])
    assert (mapped.text, undone) == (plain, ())


@pytest.mark.parametrize("text", cases(__file__, "honest"))
def test_honest_text_stays(text: str) -> None:
    mapped, undone = normalise(text, ALL)
    assert (mapped.text, undone) == (text, ())


@pytest.mark.parametrize(("step", "disguised", "plain"), cases(__file__, "undone"))
def test_what_stands_around_a_disguise_keeps_its_places(step: str, disguised: str, plain: str) -> None:
    before, behind = "Once upon a time. ", ".\nThere was a mouse"
    mapped, _ = normalise(before + disguised + behind, [step])
    assert mapped.original(0, len(before) - 2) == (0, len(before) - 2)
    found = mapped.original(len(mapped.text) - len("mouse"), len(mapped.text))
    assert found == (len(before + disguised + behind) - len("mouse"), len(before + disguised + behind))
    assert len(mapped.places) == len(mapped.text)


def test_places_are_those_of_the_letters_that_are_shown() -> None:
    text = "the \u202egnik\u202c and his m\u200bou\u0323se"
    mapped, _ = normalise(text, ALL)
    shown = mapped.text
    king, word = shown.index("king"), shown.index("m")
    assert mapped.original(king, king + 4) == (5, 9)
    assert mapped.original(king, king + 1) == (8, 9)
    assert text[slice(*mapped.original(word, len(shown)))] == "m\u200bou\u0323se"


_DISGUISES: dict[str, Callable[[str], str]] = {
    "zero-width": lambda text: text.replace(" ", " \u200b"),
    "homoglyphs": lambda text: text.replace("a", "а").replace("e", "е"),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0\u00a0"),
    "marked letters": lambda text: re.sub("([a-z])", "\\1\u0323", text),
    "mathematical letters": lambda text: re.sub("[a-z]", lambda found: chr(ord(found[0]) + 0x1D41A - 97), text),
    "colours": lambda text: text.replace(" ", " \x1b[31m"),
}


@pytest.mark.parametrize("disguise", _DISGUISES.values(), ids=_DISGUISES)
def test_the_spans_of_a_disguised_part_are_places_of_the_text_as_given(disguise: Callable[[str], str]) -> None:
    key = known_key("words", rule="bigram")
    marked, plain = marked_text(key, 150).strip(), "An unmarked sentence stands here, and it is plain. "
    detector = Detector(key, normalise=ALL)
    text, undisguised = plain * 3 + disguise(marked + " ") + plain * 2, plain * 3 + marked + " " + plain * 2
    assert Detector(key).spans(text) == ()
    # two readings share the rate
    (span,), (same,) = detector.spans(text), Detector(key, fpr=detector.fpr / 2).spans(undisguised)
    found, _ = normalise(text[span.start : span.end], ALL)
    assert found.text.split() == undisguised[same.start : same.end].split()
    detection = with_spans(detector, detector.detect(text), text)
    assert detection.disguised
    assert 0.5 < (detection.marked_share or 0) < 1


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


def test_all_stands_for_every_step_also_beside_others() -> None:
    for named in (("all",), ("nfc", "all")):
        assert detector_of(named).normalise == ALL
        assert detector_of(named).settings == detector_of().settings


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
    assert isinstance(STEPS[step](MappedText.of(unit * 300_000)), MappedText)


def test_stacked_marks_are_left_and_a_few_are_put_in_order() -> None:
    assert nfc("e\u0301") == "\u00e9"
    assert nfc("a\u0315\u0300") == "\u00e0\u0315"
    stacked = "a" + "\u0315\u0300" * 40 + "e\u0301"
    assert nfc(stacked) == stacked[:-2] + "\u00e9"


# --- disguises that nobody asked to undo

# characters that show nothing, of each block that has any: a sample of Unicode's Default_Ignorable_Code_Point
IGNORABLE = [0xAD, 0x34F, 0x1160, 0x17B4, 0x180B, 0x200B, 0x2060, 0x206A, 0x3164, 0xFEFF, 0xFFA0, 0x1BCA0, 0x1D173]
IGNORABLE += [0xE0061, 0xE0101]
# letters of other shapes: of most, in their order from a on; of some, as far as there are any
FIRST = [0x1D41A, 0x1D482, 0x1D4EA, 0x1D51E, 0x1D552, 0x1D5BA, 0x1D5EE, 0x1D656, 0x1D68A, 0x24D0, 0x249C]
SHAPES = [{ord("a") + n: chr(first + n) for n in range(26)} for first in FIRST]
SHAPES += [
    {ord(one): unicodedata.lookup(f"LATIN LETTER SMALL CAPITAL {one.upper()}") for one in "abcdeghijklmnoprtuvwyz"},
    {ord(one): unicodedata.lookup(f"MODIFIER LETTER SMALL {one.upper()}") for one in "abcdefghjklmoprstuvwxyz"},
    {ord(letter): unicodedata.lookup(f"SMALL ROMAN NUMERAL {name}")
     for letter, name in zip("ivxlcdm", ("ONE", "FIVE", "TEN", "FIFTY", "ONE HUNDRED", "FIVE HUNDRED", "ONE THOUSAND"),
                             strict=True)},
]  # fmt: skip
WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


def _between_words(sign: str) -> Callable[[str], str]:
    return lambda text: text.replace(" ", sign)


def _within_words(sign: str) -> Callable[[str], str]:
    return lambda text: re.sub("(?<=[a-z])(?=[a-z])", sign, text)


ODD_SPACES = (
    "\u00a0", "\u2009", "\u3000", "  ", " \u2003", "\x0b", "\x0c", "\x1f", "\u3164", "\u1160", "\u2028", "\u2029",
    "\x85",
)  # fmt: skip
DISGUISES: dict[str, list[Callable[[str], str]]] = {
    "ansi": [
        lambda t: t.replace(" ", "\x1b[0m \x1b[32m"),
        lambda t: t.replace(" ", "\x9b0m \x9b32m"),
        lambda t: "".join(f"{one}\b{one}" for one in t),
    ],
    "nfc": [lambda t: unicodedata.normalize("NFD", t.translate(dict(zip(b"aeo", "áéó", strict=True))))],
    "invisible": [
        *(_within_words(one) for one in map(chr, IGNORABLE)),
        *(_within_words(one) for one in "\u200d\u200e\u200f\u061c\u2066\ufffc\x1f\x00\x7f"),
        lambda t: f"\u202e{t[::-1]}\u202c",
        lambda t: re.sub(r"\S+", lambda word: f"\u202e{word[0][::-1]}\u202c", t),
    ],
    "compatibility": [
        lambda t: t.translate(WIDE),
        *(lambda t, shapes=shapes: t.translate(shapes) for shapes in SHAPES),
        *(_within_words(mark) for mark in "\u0332\u0336\u0338\u20dd\u20e0"),
        lambda t: re.sub("([^\n])", "\\1\u0336", t),  # with the spaces
        *(lambda t, mark=mark: re.sub("([a-z])", f"\\1{mark}", t) for mark in "\u0323\u0305"),
        lambda t: unicodedata.normalize("NFC", re.sub("([a-z])", "\\1\u0323", t)),
    ],
    "homoglyphs": [
        lambda t: t.replace("a", "ɑ").replace("g", "ɡ"),
        lambda t: t.replace("a", "а"),
        lambda t: t.replace("o", "ο"),
    ],
    "whitespace": [_between_words(one) for one in ODD_SPACES],
    "capitals": [str.upper],
}
CASES = [(step, number) for step, disguises in DISGUISES.items() for number in range(len(disguises))]


@pytest.mark.parametrize(("step", "number"), CASES)
def test_a_text_without_the_mark_names_the_disguises_in_it(step: str, number: int) -> None:
    text = DISGUISES[step][number](marked_text(known_key("words"), 300))
    found = detector_of(()).detect(text)
    assert found.verdict != "watermarked"
    assert step in found.normalise_would_change
    for sentence in (found.summary, verdict_sentence(found, public=True)):
        assert " ".join(f"--normalise {one}" for one in found.normalise_would_change) in sentence
        assert f"normalise={list(found.normalise_would_change)}" in sentence
    assert found.to_row("a")["normalise_would_change"] == list(found.normalise_would_change)
    undone = detector_of(found.normalise_would_change).detect(text)
    assert undone.normalise_would_change == ()
    assert undone.verdict == "watermarked" or step == "nfc"  # where other letters stand in place of the marked ones


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (unicodedata.normalize("NFD", "한국어로 쓴 글도 자모로 나뉘어 저장될 수 있다. " * 3), ("nfc",)),
        (unicodedata.normalize("NFD", "ガラスのビンをバスでゴミばこへはこぶ。" * 3), ("nfc",)),
        (unicodedata.normalize("NFD", "Tiếng Việt có nhiều dấu thanh và dấu mũ. " * 3), ("nfc",)),
        ("यह वाक्य हिन्दी में लिखा गया है और लंबा है".replace(" ", "\u00a0"), ("whitespace",)),
        ("이 문장은 한국어로 쓰였고 꽤 길다".replace(" ", "\u3000"), ("whitespace",)),
        ("هذه جملة مكتوبة باللغة العربية وهي طويلة".replace(" ", "\u2009"), ("whitespace",)),
        ("Tabs stand between all of these words here".replace(" ", "\t"), ("whitespace",)),
        ("ДЛИННЫЙ ТЕКСТ ИЗ ОДНИХ ЗАГЛАВНЫХ БУКВ", ("capitals",)),
        # ordinary
        ("我爱NBA，也爱CBA。" * 5, ()),
        ("total=first+second+third;\nshare = total / 3\n" * 5, ()),
        ("春は　あけぼの　やうやう　白く　なりゆく　山ぎは", ()),
        ("name\tsize of it\nfirst file here\t12\nsecond file here\t15\n" * 5, ()),
        ("Il dit\u00a0: «\u00a0Non\u00a0» — et puis\u00a0? Rien\u00a0! " * 5, ()),
    ],
)
def test_disguises_are_seen_in_every_script(text: str, steps: tuple[str, ...]) -> None:
    assert disguises_in(text) == steps


def test_several_keys_are_told_to_take_one() -> None:
    ring = Keyring([known_key("words"), known_key("others")], tokenizer=builtin_tokenizer())
    found = ring.detect(marked_text(known_key("words"), 300).replace(" ", "\u00a0"))
    assert "test it again for one key with these undone, by --normalise " in found.summary


@pytest.mark.parametrize(
    ("text", "times"),
    [
        *cases(__file__, "ordinary"),
        ("好的　你好，世界。" * 30 + "ＡＢＣ。", 3),
        ("\x1b[31mred\x1b[0m " + "and a long text without any colour at all " * 9, 1),
        ("", 1),
    ],
)
def test_what_is_ordinary_is_no_disguise(text: str, times: int) -> None:
    assert disguises_in(text * times) == ()


def test_no_step_finds_anything_in_the_characters_that_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = [one for one in map(chr, range(sys.maxunicode + 1)) if normalise_module._PLAIN.fullmatch(one)]
    assert {*"\n azAZ~éß“”‘’–—…€"} <= {*plain}
    monkeypatch.setattr(normalise_module, "_PLAIN", re.compile("(?!)"))
    for one in plain:
        text = f"a{one}b {one} {one}{one}c 1{one}2 " * 20
        assert "  " in text or disguises_in(text) == ()
