"""Readers take time in proportion to their input: twice the input takes about twice the time."""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from dgmark_documents.catalogues import read_catalogue
from dgmark_documents.charsets import decode_page
from dgmark_documents.html_text import read_html
from dgmark_documents.mail import read_mail
from dgmark_documents.reading import Refusal
from dgmark_documents.rtf import read_rtf
from dgmark_documents.subtitles import read_subtitles
from dgmark_documents.xml_text import read_xml

MAIL = b"From: a\nMIME-Version: 1.0\n"
# readers, and inputs of a size
INPUTS: dict[str, tuple[Callable[[bytes], object], Callable[[int], bytes]]] = {
    "page of signs": (read_html, lambda n: b"<" * n),
    "character set of a page of signs": (decode_page, lambda n: b"<" * n),
    "page of comments": (read_html, lambda n: b"<!--" * n),
    "page of paragraphs": (read_html, lambda n: b"<p>word" * (n // 10)),
    "page of hidden parts": (read_html, lambda n: b"<i hidden>a</i>" * (n // 10)),
    "style sheet of strings": (read_html, lambda n: b"<style>" + b"content:'a" * (n // 10) + b"</style>x"),
    "RTF of brackets": (read_rtf, lambda n: b"{\\rtf1 " + b"{" * (n // 10) + b"}" * (n // 10) + b"}"),
    "RTF of hidden texts": (read_rtf, lambda n: b"{\\rtf1 " + b"{\\v a}" * (n // 10) + b"}"),
    "RTF of tips": (read_rtf, lambda n: b"{\\rtf1 {\\field{\\*\\fldinst HYPERLINK " + b'\\\\o "a' * n + b"}}}"),
    "RTF of labels": (
        read_rtf,
        lambda n: (
            b"{\\rtf1\\ls1 " + b"".join(b"{\\leveltext a%d;}{\\listtext b%d}" % (i, i) for i in range(n // 20)) + b"}"
        ),
    ),
    "XML of elements": (read_xml, lambda n: b"<a>" + b"<b>x</b>" * (n // 10) + b"</a>"),
    "catalogue of marks": (read_catalogue, lambda n: b'msgid "a"\n' + b'"\\' * n),
    "subtitles of signs": (read_subtitles, lambda n: b"<" * n),
    "mail of signs": (read_mail, lambda n: MAIL + b"Subject: " + b"<" * n + b"\n\nx"),
}


def seconds(read: Callable[[bytes], object], content: bytes) -> float:
    """The least processor time of two readings."""
    taken = []
    for _ in range(2):
        start = time.process_time()
        with suppress(Refusal):
            read(content)
        taken.append(time.process_time() - start)
    return min(taken)


@pytest.mark.parametrize("name", INPUTS)
def test_eight_times_the_input_takes_less_than_thirty_two_times_the_time(name: str) -> None:
    read, make = INPUTS[name]
    # a reader in the square takes 64 times as long; the constant covers what takes as long for any input
    assert seconds(read, make(40_000)) < 32 * (seconds(read, make(5_000)) + 0.002)
