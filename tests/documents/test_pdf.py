"""Lines of a PDF to paragraphs, and what stands at the head and foot of its pages."""

from pathlib import Path

import pytest

from dgmark.documents.pdf import PdfLine, join_lines, read_pdf, without_headers
from dgmark.documents.reading import Limits
from support.documents import CORPUS


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


@pytest.mark.parametrize(
    ("stream", "damaged"), [(b"/FlateDecode>>\nstream\n", True), (b"/Length1 21792>>\nstream\n", False)]
)
def test_a_damaged_stream_of_text_is_noted(stream: bytes, damaged: bool, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    content = bytearray((CORPUS / "columns.pdf").read_bytes())
    start = content.index(stream) + len(stream)
    content[start + 900 : start + 903] = b"\0\0\0"
    (tmp_path / "a.pdf").write_bytes(content)
    with (tmp_path / "a.pdf").open("rb") as file:
        reading = read_pdf(file, Limits())
    assert reading.lacking == damaged
    assert ("1 end of damaged streams is left out" in reading.notes) == damaged
