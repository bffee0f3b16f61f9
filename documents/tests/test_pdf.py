"""Lines of a PDF to paragraphs, and what stands at the head and foot of its pages."""

from io import BytesIO

import pytest

from dgmark_documents.pdf import read_pdf
from dgmark_documents.pdf_lines import PdfLine, join_lines, without_headers
from dgmark_documents.reading import Limits
from support.documents import CORPUS
from support.office_documents import pdf


def lines(*texts: str, width: float = 5.0, left: float = 0.0) -> list[PdfLine]:
    return [PdfLine(text, left, left + width * len(text)) for text in texts]


def test_lines_are_joined_and_short_lines_end_paragraphs() -> None:
    text = [
        "This line is full to the end of it",
        "and the next one ends here.",
        "A new one begins, and it goes on to",
        "its end",
    ]
    assert join_lines(lines(*text)) == f"{text[0]} {text[1]}\n{text[2]} {text[3]}"


def test_an_indented_line_begins_a_paragraph() -> None:
    full = lines("this line is as long as others are", "and this line is as long as others")
    indented = [PdfLine("This line is indented a bit more", 12, 170), *lines("and goes on to the end of its line")]
    assert join_lines([*full, *indented]).count("\n") == 1


def test_halves_of_a_word_are_joined() -> None:
    assert join_lines(lines("a word that is hyphen\ufffe", "ated in two, and in\ufffeside")) == (
        "a word that is hyphenated in two, and inside"
    )


def test_bullets_begin_paragraphs_and_are_left_out() -> None:
    text = join_lines(lines("• one item that is long and takes", "two lines of its own in here ab", "• another item"))
    assert text == "one item that is long and takes two lines of its own in here ab\nanother item"


def test_headers_and_footers_are_what_near_pages_repeat() -> None:
    pages = [lines(f"Tale {page % 2}", f"body {'abcdefg'[page]} of it", f"{page}") for page in range(7)]
    kept, left_out = without_headers(pages)
    assert [[line.text for line in page] for page in kept] == [[f"body {letter} of it"] for letter in "abcdefg"]
    assert left_out == 14


def test_pages_that_are_alike_are_kept() -> None:
    pages = [lines("one", "two", "three", "four", "five", "six")] * 3
    assert without_headers(pages) == (pages, 0)
    assert without_headers(pages[:1]) == (pages[:1], 0)


def test_text_that_stands_upside_down_is_read() -> None:
    text = [
        "The king went to the sea and looked at the ships that",
        "lay there in the harbour, all of them, at anchor.",
    ]
    shown = " ".join(f"-1 0 0 -1 500 {100 + 20 * number} Tm ({line}) Tj" for number, line in enumerate(text))
    assert read_pdf(BytesIO(pdf(f"BT /F 12 Tf {shown} ET")), Limits()).text == " ".join(text)


EMPTY = b"9 0 obj<</Length 0/Filter/FlateDecode>>stream\n\nendstream endobj\n"


@pytest.mark.parametrize(
    ("place", "changed", "damaged"),
    [
        (b"/FlateDecode>>\nstream\n", b"\0\0\0", True),
        (b"/Length1 21792>>\nstream\n", b"\0\0\0", False),  # a font
        (b"%%EOF", EMPTY, False),
    ],
)
def test_a_damaged_stream_of_text_is_noted(place: bytes, changed: bytes, damaged: bool) -> None:
    content = (CORPUS / "columns.pdf").read_bytes()
    start = content.index(place) + len(place) + (900 if place.endswith(b"stream\n") else 1)
    reading = read_pdf(BytesIO(content[:start] + changed + content[start + len(changed) :]), Limits())
    assert (reading.uncertain_because == "unread") == damaged
    assert ("1 end of damaged streams is left out" in reading.notes) == damaged
