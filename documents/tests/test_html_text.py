"""HTML to text: what a browser shows of the page itself."""

import pytest

from dgmark_documents.html_text import read_html
from support.cases import cases, data

TEXT = "A tale\n\nOne day twothree four.\nFivesix 2.\n\nseen\n\nleft right\n\nfirst\nsecond\n\n  for x in y:\n    z"
AROUND = "The site\n\nHome Books\n\nRead also\n\nImprint\n\nTitle\n\nnever\n\nnever\n\nnever"


def test_a_page_is_its_own_text_and_then_what_stands_around_it() -> None:
    reading = read_html(data(__file__, "page").encode())
    assert reading.text == f"{TEXT}\n\n{AROUND}"
    assert reading.how == (
        "read behind the body: header (7 letters), nav (9 letters), aside (8 letters), footer (7 letters), "
        "titles (5 letters), hidden text (15 letters)",
        "1 script is left out",
    )
    assert reading.notes == ()  # of what a reader sees, nothing is missing


@pytest.mark.parametrize(("page", "text"), cases(__file__, "shown"))
def test_tags_spaces_and_characters(page: str, text: str) -> None:
    assert read_html(page.encode()).text == text


def test_a_page_that_is_cut_off_says_so() -> None:
    cut = read_html(data(__file__, "page").partition("<table>")[0].encode())
    assert "its end tags are missing, as where a file is cut off" in cut.how
    assert cut.text.startswith(TEXT[: TEXT.index("left")])


def test_the_page_names_its_character_set() -> None:
    page = '<meta charset="iso-8859-2"><p>księżniczka</p>'
    assert read_html(page.encode("iso-8859-2")).text == "księżniczka"
