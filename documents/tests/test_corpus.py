"""Documents that LibreOffice and python-pptx wrote: the text comes back, and the verdict is that of the plain text."""

from difflib import SequenceMatcher

import pytest

from dgmark import Detector, read_document
from dgmark.errors import InputError
from dgmark.rows.documents import Document
from support.documents import CORPUS, NOTE, corpus_key, source_of

DETECTOR = Detector(corpus_key())

EXACT = [
    *("story.txt", "latin.txt", "utf16.txt", "windows.txt"),
    *("story.docx", "soft.docx"),
    "story.pptx",
    *("story.odt", "soft.odt"),
    *("story.rtf", "soft.rtf"),
    *("story.pdf", "pages.pdf", "soft.pdf"),
]
# whose pages have a header and a footer
ENDED = ["pages.docx", "columns.docx", "pages.odt", "columns.odt", "pages.rtf"]
# browsers leave an empty line between paragraphs when they copy them
BROWSED = ["story.html", "soft.html", "story.epub", "layout.epub"]
NOTED = ["layout.docx", "layout.odt"]
# characters inserted, left out or replaced; the texts have 1,044 (story) and 3,136; layout.rtf has a note of 31
CLOSE = {"layout.rtf": 34, "layout.html": 50, "columns.pdf": 40, "layout.pdf": 45}
# whose empty lines or other lines shift the positions of most tokens, which a key of the position rule does not follow
SHIFTED = {"story.html", "soft.html", "story.epub", "layout.pdf"}
TABLES = ["table.csv", "table.xlsx"]
UNREADABLE = {
    "picture.png": "is a picture",
    "scan.pdf": "1 page of pictures .page 1. is left out; it holds no text",
    "locked.pdf": "is encrypted with a password",
    "locked.docx": "is encrypted with a password",
}


def read(name: str) -> Document:
    return read_document(CORPUS / name)


@pytest.mark.parametrize("name", EXACT)
def test_the_text_comes_back_exactly(name: str) -> None:
    assert read(name).text.strip() == source_of(name)


@pytest.mark.parametrize("name", ENDED)
def test_headers_and_footers_stand_behind_the_body(name: str) -> None:
    body, header, footer = read(name).text.strip().split("\n\n")
    assert (body, header) == (source_of(name), "The Collected Tales, a sample")
    assert footer.startswith("Page ")
    assert read(name).uncertain_because is None


@pytest.mark.parametrize("name", BROWSED)
def test_a_page_has_an_empty_line_between_paragraphs(name: str) -> None:
    text, source = read(name).text, source_of(name)
    lines = text.replace("\n\n", "\n")
    assert lines.startswith(source)
    assert "\n\n" in text
    # the title, and a note that stands beside the chapter
    assert len(lines) - len(source) < 100


@pytest.mark.parametrize("name", NOTED)
def test_notes_stand_after_the_body_and_their_marks_are_left_out(name: str) -> None:
    body, note = read(name).text.rsplit("\n\n", 1)
    assert (body, note.strip()) == (source_of(name), NOTE)


@pytest.mark.parametrize("name", CLOSE)
def test_the_rest_comes_back_within_the_stated_error(name: str) -> None:
    text, source = read(name).text, source_of(name)
    same = sum(block.size for block in SequenceMatcher(None, source, text, autojunk=False).get_matching_blocks())
    assert max(len(text), len(source)) - same <= CLOSE[name]


@pytest.mark.parametrize("name", TABLES)
def test_a_column_of_a_table_is_its_texts(name: str) -> None:
    rows = read(name).rows
    assert "\n".join(text for _, text in rows) == source_of(name)
    assert [row_id for row_id, _ in rows] == [f"row {n}" for n in range(1, len(rows) + 1)]


@pytest.mark.parametrize("name", sorted({*EXACT, *ENDED, *BROWSED, *NOTED, *CLOSE} - SHIFTED))
def test_the_verdict_is_that_of_the_plain_text(name: str) -> None:
    # each text holds at least 256 marked tokens; its p-value is at most 1e-6 as plain text
    assert DETECTOR.detect(source_of(name)).p_value < 1e-6
    assert DETECTOR.detect(read(name).text).verdict == "watermarked"


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_an_error_with_its_reason(name: str) -> None:
    with pytest.raises(InputError, match=UNREADABLE[name]):
        read(name)


def test_pages_and_what_is_left_out_are_stated() -> None:
    pages = read("pages.pdf")
    assert (pages.kind, pages.pages) == ("PDF", 2)
    assert pages.notes == ("4 lines that repeat at the head and foot of pages are left out",)
    assert read("table.xlsx").pages == 1
    assert read("story.docx").notes == ()


def test_the_hash_is_of_the_text() -> None:
    assert read("story.pdf").sha256 == read("story.odt").sha256 != read("pages.odt").sha256
    assert Document("abc", "text").sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
