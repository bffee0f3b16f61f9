"""Texts are read as they are and with their layout undone; places in the second reading lead back to the text."""

import itertools
import math
import re
import textwrap
from collections.abc import Callable

import numpy as np
import pytest

from dgmark.checkpoint.folder import BUILTIN
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.reading.disguises import line_ends
from dgmark.detection.reading.disguises.mapped_text import MappedText
from dgmark.detection.reading.disguises.normalise import STEPS
from dgmark.detection.reading.disguises.readings import MARKUP, WRAPPING, readings
from dgmark.detection.results import sentences as words
from support.cases import data
from support.known_keys import bound_key, builtin_tokenizer, known_key
from support.marked_texts import marked_text
from support.unmarked_texts import PROSE

PROSE_WORDS = (PROSE / "willows.txt").read_text().split()
KEY = known_key("words", rule="bigram")
MARKED = marked_text(KEY, 240).strip()


def unwrap(text: str) -> str:
    return line_ends.unwrap(MappedText.of(text)).text


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


LEFT = {
    "prose": WILLOWS,
    "empty": "",
    "blank": "\n" * 99,
    "two lines": "Two lines of the usual width are not enough to say that somebody\n"
    "has wrapped them: chance does it, too.",
    "list": "\n".join(f"A list with {'many ' * (n % 7)}points" for n in range(40)),
    "table": "\n".join(f"{'x' * 20},{n:030},{'y' * 10}" for n in range(100, 140)),
    "code": "\n".join(["def function(argument):", "    return argument", "", "print(function(1))"] * 20),
    "paragraphs": "\n\n".join(["A paragraph of one line that is about as wide as any other here."] * 20),
    # lists and programs of short lines
    "few": "no\ntime\nto\nbe\nin\nthe\nsea\nand\nat\nnight\nit\nwas\nnot",
    "alphabet": "\n".join(sorted({word.lower() for word in MARKED.split() if word.isalpha()})),
    "commas": "\n".join(f"    {word}," for word in MARKED.split()),
    "paths": "\n".join(f"usr/{n}/file_{n}.txt" for n in range(40)),
    "numbers": "\n".join(str(n * 37) for n in range(40)),
    "brackets": "\n".join(["}", "});", "]", "{", "end"] * 9),
    "two words": "\n".join(["First words", "Second words", "are two"] * 20),
    "statements": "\n".join(["return value", "x = 3", "call(it)"] * 20),
    "rules": "\n".join("-=" * 9 for _ in range(30)),
}


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
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
    found = Detector(known_key("words"), tokenizer=builtin_tokenizer()).detect(text)
    assert (found.verdict, found.normalised) == ("watermarked", ())


def test_a_wrapped_disguise_is_undone_in_one_reading() -> None:
    found = Detector(known_key("words"), tokenizer=builtin_tokenizer(), normalise=tuple(STEPS)).detect(
        wrapped(marked_text(known_key("words"), 120), 72).replace(" ", "\u00a0")
    )
    assert (found.verdict, found.normalised, found.disguised) == ("watermarked", ("whitespace", WRAPPING), True)


# --- words on lines of their own


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def pairs_of(words: list[str], size: int) -> list[str]:
    return [" ".join(words[at : at + size]) for at in range(0, len(words), size)]


ALONE = {
    **{
        name: between.join(map(alone.format, MARKED.split()))
        for name, (alone, between) in data(__file__, "alone").items()
    },
    "a numbered list": "\n".join(f"{n % 900}. {word}" for n, word in enumerate(MARKED.split())),
    "two words": "\n".join(pairs_of(MARKED.split(), 2)),
    "four words far apart": "\n\n".join(pairs_of(MARKED.split(), 4)),
    "letters": "\n".join(MARKED),
    "letters far apart": "\n\n".join(MARKED),
    "three letters": "\n".join(pieces(MARKED, 3)),
    "seven letters": "\n".join(pieces(MARKED, 7)),
}


@pytest.mark.parametrize("layout", ALONE)
def test_words_and_letters_on_lines_of_their_own_are_put_together(layout: str) -> None:
    text = ALONE[layout]
    detector = Detector(KEY)
    found = detector.detect(text)
    assert found.verdict == "watermarked"
    assert WRAPPING in found.normalised
    assert math.log(found.p_value) < 0.95 * math.log(detector.detect(MARKED).p_value)
    (span,) = detector.spans(text)
    assert len(text[span.start : span.end]) > 0.9 * len(text)
    assert text[span.start].isalpha()
    tokens = detector.tokens(text, found)
    assert all(0 <= one.start < one.end <= len(text) for one in tokens)
    assert [one.start for one in tokens] == sorted(one.start for one in tokens)


def test_only_the_part_that_stands_alone_is_put_together_and_paragraphs_stay() -> None:
    alone = "a moment later the man was not aware of his companion and he left\n\nthen he came back to us"
    one_a_line = "\n".join("\n".join(part.split()) for part in alone.split("\n"))
    text = f"This is the first line.\n{one_a_line}\nThis is the last line."
    assert unwrap(text) == f"This is the first line.\n{alone.replace(chr(10) * 2, chr(10))}\nThis is the last line."


# --- markup

EACH = data(__file__, "each_word")


@pytest.mark.parametrize("markup", EACH)
def test_a_mark_whose_words_stand_in_markup_is_found_and_its_span_lies_in_the_text(markup: str) -> None:
    text = " ".join(EACH[markup].format(word) for word in MARKED.split())
    detector = Detector(KEY)
    found, plain = detector.detect(text), detector.detect(MARKED)
    assert (found.verdict, found.normalised) == ("watermarked", (MARKUP,))
    assert found.p_value == pytest.approx(2 * plain.p_value)
    assert not found.disguised
    assert "such as those of markup" in " ".join(words.meaning(found))
    (span,) = detector.spans(text)
    assert len(text[span.start : span.end]) > 0.9 * len(text)
    for shown, token in zip(detector.tokens(text, found), detector.tokens(MARKED, plain), strict=True):
        assert text[shown.start : shown.end].endswith(MARKED[token.start : token.end].strip())


BETWEEN = data(__file__, "between_words")


@pytest.mark.parametrize("between", BETWEEN)
def test_what_stands_between_all_words_reads_as_a_space(between: str) -> None:
    text = BETWEEN[between].join(MARKED.split())
    found = Detector(KEY).detect(text)
    assert found.verdict == "watermarked"
    assert MARKUP in found.normalised
    assert math.log(found.p_value) < 0.9 * math.log(Detector(KEY).detect(MARKED).p_value)
    numbered = "".join(f"{word}<{number:03}:{number}> " for number, word in enumerate(MARKED.split()))
    assert Detector(KEY).detect(numbered).verdict == "watermarked"


@pytest.mark.parametrize(
    "text",
    [
        ", ".join(MARKED.split()),
        "\n".join(f"{word},{n}" for n, word in enumerate(MARKED.split()[:20])),
        "One - two - three. " * 9 + "a/b/c/d/e, f_g_h. " * 9,
        "".join(f"| {word} | {other} cell |\n" for word, other in zip(MARKED.split(), PROSE_WORDS, strict=False)),
    ],
    ids=["list", "columns", "signs here and there", "table"],
)
def test_lists_and_tables_have_no_separators(text: str) -> None:
    assert len(readings(text)) == 1


def test_a_text_with_little_markup_has_one_reading() -> None:
    sentence = "a **bold** word, and `code` in a sentence of many other words that no sign of a language touches at all"
    assert len(readings(f"# Heading\n\n* {sentence}.\n" * 9)) == 1
    assert len(readings(MARKED)) == 1
    assert len(readings(np.arange(3))) == 1


# --- what is published


def curly(text: str) -> str:
    text = text.replace("--", "\u2014").replace("...", "\u2026").replace("'", "\u2019")
    return re.sub(r'"(?=\w)', "\u201c", text).replace('"', "\u201d")


TYPED = '"I went home--at last," he said, "and didn\'t sleep..." '


def quoted(text: str, sign: str) -> str:
    return "\n".join(sign + line for line in wrapped(text, 72).split("\n"))


def side_by_side(left: str, right: str) -> str:
    """A page as `pdftotext -layout` writes it."""
    sides = [textwrap.wrap(text, 44, break_on_hyphens=False) for text in (left, right)]
    rows = itertools.zip_longest(*sides, fillvalue="")
    return "A title over both columns of the page, in one line\n\n" + "\n".join(
        f"{a:44}    {b}".rstrip() for a, b in rows
    )


PUBLISHED: dict[str, Callable[[str], str]] = {
    "typography": curly,
    "quoting": lambda text: "He wrote:\n" + quoted(text, "> ") + "\n\n-- \nA. Reader\nSome Street",
    "quoted twice": lambda text: quoted(text, "> > "),
    "bars": lambda text: quoted(text, "| "),
    "columns": lambda text: side_by_side(text[: len(text) // 2], text[len(text) // 2 :]),
}


@pytest.mark.parametrize("way", PUBLISHED)
def test_what_publishing_puts_around_a_text_is_undone_and_named(way: str) -> None:
    marked = TYPED * 3 + MARKED
    text = PUBLISHED[way](marked)
    detector, name = Detector(KEY), {"quoted twice": "quoting", "bars": "quoting"}.get(way, way)
    found, plain = detector.detect(text), detector.detect(marked)
    assert name in found.normalised
    assert not found.disguised
    assert math.log(found.p_value) < 0.9 * math.log(plain.p_value)
    assert len([one for one in words.meaning(found) if one in sentences_of(found.normalised)]) == len(found.normalised)
    (span,) = detector.spans(text)
    assert text[span.start : span.end].count(" ") > 0.8 * MARKED.count(" ")
    shown = [text[one.start : one.end] for one in detector.tokens(text, found)]
    assert sum(one.strip() in MARKED for one in shown) > 0.7 * len(shown)


def sentences_of(normalised: tuple[str, ...]) -> list[str]:
    return [words._LAYOUT_UNDONE[name] for name in normalised]


def test_marks_are_written_as_they_are_typed() -> None:
    text = "\u201cHome\u2014at last\u201d \u2013 1914\u20131918, an\u2013b, \u2018it\u2019s\u2019\u2026"
    reading = readings(text)[1]
    assert reading.content == "\"Home--at last\" - 1914-1918, an--b, 'it's'..."
    assert isinstance(reading.content, str)
    end = reading.content.index("...")
    assert reading.original(end, end + 3) == (len(text) - 1, len(text))
    assert len(readings("\u2019 " + "and so on, for many words " * 20)) == 1  # one sign costs less than a reading


def test_two_columns_are_read_one_after_the_other() -> None:
    left, right = (text[:900].rsplit(" ", 1)[0] for text in WILLOWS.split("\n")[:2])
    page = side_by_side(left, right)
    reading = readings(page + "\f" + page)[1]
    assert reading.undone[0] == "columns"
    assert isinstance(reading.content, str)
    words_of_page = f"A title over both columns of the page, in one line {left} {right}".split()
    assert reading.content.split() == words_of_page * 2
    place = reading.content.index(right[:20])
    assert page[slice(*reading.original(place, place + 20))] == right[:20]


@pytest.mark.parametrize("end", ["\n", "\n\n", "\f", "\n\n\f\n", "\n    ", "\nshort\n\n", "\nshort\n\n\f"], ids=repr)
def test_columns_may_end_in_empty_and_short_lines(end: str) -> None:
    left, right = (text[:900].rsplit(" ", 1)[0] for text in WILLOWS.split("\n")[:2])
    page = side_by_side(left, right) + end
    reading = readings(page)[1]
    assert reading.undone[0] == "columns"
    assert isinstance(reading.content, str)
    title = "A title over both columns of the page, in one line"
    assert reading.content.split() == " ".join([title, left, *end.split(), right]).split()
    place = reading.content.index(right[:20])
    assert page[slice(*reading.original(place, place + 20))] == right[:20]
    assert reading.original(0, len(reading.content))[1] <= len(page)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"name{n}      {n * 3}      yes" for n in range(30)),
        "\n".join(f"| cell {n} | another |" for n in range(30)),
        "\n".join(f"    {n} | n > 3     = f n    -- a note" for n in range(5)),
        "> one line\nand another\n> and one more\n",
        "a = b   # a comment of three words\n" * 6 + "c = d\n" * 7,
        "List of things:\n--\nOne\n" + "and many lines\n" * 12,
    ],
    ids=["table", "table with bars", "guards", "two lines", "comments", "no signature"],
)
def test_tables_and_programs_have_no_columns_and_no_quotes(text: str) -> None:
    assert not {"columns", "quoting"} & set(readings(text)[-1].undone)
