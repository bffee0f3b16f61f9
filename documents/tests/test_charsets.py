"""Bytes to text: character sets, line ends, and what is no text."""

import pytest

from dgmark_documents.charsets import decode, decode_page
from dgmark_documents.reading import Refusal
from support.cases import cases
from support.documents import document_from

WESTERN = "Über die Brücke ging ein Müller; “Il était une fois une fenêtre”, sagte er – und lachte. " * 3
POLISH = "Zażółć gęślą jaźń. Była sobie raz księżniczka, która mieszkała w wysokiej wieży. " * 3
RUSSIAN = "Жили-были старик со старухой у самого синего моря. " * 5
CHINESE = "从前有一个老人和一个老妇人住在海边。" * 8


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((WESTERN, name) for name in ("utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252")),
        *((POLISH, name) for name in ("utf-8", "utf-16", "cp1250")),
        *((RUSSIAN, name) for name in ("cp1251", "koi8-r")),
        *((CHINESE, name) for name in ("gb18030", "utf-16")),
    ],
)
def test_the_character_set_is_found(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[0] == text


def test_a_guess_is_noted() -> None:
    assert decode(WESTERN.encode())[1] == []
    assert decode(WESTERN.encode("cp1252"))[1] == [
        "it is not UTF-8 and was read as cp1252; if this is wrong, save it as UTF-8"
    ]


def test_utf8_with_a_broken_character_stays_utf8() -> None:
    content = RUSSIAN.encode()
    text, notes = decode(content[:40] + b"\xff" + content[40:])
    assert text.replace("\ufffd", "") == RUSSIAN
    assert notes == ["read as UTF-8 with 1 broken characters"]


def test_line_ends_become_line_feeds() -> None:
    assert decode(b"a\r\nb\rc\nd")[0] == "a\nb\nc\nd"


def test_text_of_any_script_is_legible() -> None:
    for text in (
        "नमस्ते दुनिया",
        "שלום עולם\u200f",
        "สวัสดีชาวโลก",
        "👩‍👩‍👧 \u00adsoft\u200b",
        "tab\tand escape\f" * 3,
    ):
        assert decode(text.encode())[0] == text


def test_codes_for_a_terminal_go_with_a_note() -> None:
    coded = "\x1b[1;31mred\x1b[0m \x1b]0;a title\x07b\bbo\bol\bld\bd \x1b(B\x9b4mline"
    document = document_from(coded.encode(), "text.txt")
    assert document.text == "red bold line"
    assert document.notes == ("codes that steer a terminal, such as colours, were left out",)


@pytest.mark.parametrize("content", [b"\0" * 90, b"word\1\2" * 9, "\ue000\ue001 ab".encode(), b"\xff\xfeab\0" * 9])
def test_what_is_no_text_is_refused(content: bytes) -> None:
    with pytest.raises(Refusal):
        decode(content)


TEXTS = {"western": WESTERN, "polish": POLISH, "russian": RUSSIAN, "chinese": CHINESE}
TEXTS |= {"plain": "plain words", "rare": CHINESE + "\u3447"}
PAGE = "<html><head>{}</head><body><p>{}</p></body></html>"


@pytest.mark.parametrize(("stated", "encoding", "text"), cases(__file__, "stated"))
def test_a_page_is_decoded_as_browsers_do(stated: str, encoding: str, text: str) -> None:
    page = PAGE.format(stated, TEXTS[text])
    assert decode_page(page.encode(encoding))[0] == page


def test_the_declaration_of_xml_counts_behind_what_the_page_states() -> None:
    declared = '<?xml version="1.0" encoding="windows-1251"?>'
    page = declared + PAGE.format("", RUSSIAN)
    assert decode_page(page.encode("cp1251"))[0] == page
    page = declared + PAGE.format('<meta charset="utf-8">', RUSSIAN)
    assert decode_page(page.encode())[0] == page


def test_the_note_of_a_guess_stands_for_pages_too() -> None:
    assert "was read as cp1251" in decode_page(PAGE.format("", RUSSIAN).encode("cp1251"))[1][0]
