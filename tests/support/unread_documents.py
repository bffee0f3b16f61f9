"""A marked text, an unmarked one, and the verdict on documents that hold them: for tests of what is read of these."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from dgmark import Detector
from dgmark.detection.results.legibility import of_document
from dgmark.rows.documents import Document
from dgmark_documents.epub import read_epub
from dgmark_documents.html_text import read_html
from dgmark_documents.mail import read_mail
from dgmark_documents.opendocument import read_odt
from dgmark_documents.pdf import read_pdf
from dgmark_documents.presentation import read_pptx
from dgmark_documents.reading import Limits, Reading
from dgmark_documents.rtf import read_rtf
from dgmark_documents.word import read_docx
from dgmark_documents.zip_archive import ZipArchive
from support.known_keys import known_key
from support.marked_texts import marked_text

KEY = known_key("unread", rule="bigram")
DETECTOR = Detector(KEY)
_MARKED = marked_text(KEY, 330)
_LICENSE = " ".join((Path(__file__).parents[2] / "LICENSE").read_text("utf-8").split())
# marked, with commas, as text has; and of letters and signs that need no escapes in any format
TEXT = ", ".join(re.findall(r"(?:\S+ ){40}\S+", _MARKED))
LETTERS = " ".join(re.findall(r"[A-Za-z]+[.,]?", _MARKED))
# not marked
BODY = re.sub(r'[()"]', "", _LICENSE)[:3000]
HUMAN = re.sub(r"[^A-Za-z., ]", "", _LICENSE)
DECOY = HUMAN[3000:9500]  # has 1,000 words

_PLAIN: dict[str, Callable[[bytes], Reading]] = {".html": read_html, ".rtf": read_rtf, ".eml": read_mail}
_PACKED: dict[str, Callable[[ZipArchive, Limits], Reading]] = {
    ".docx": lambda archive, _: read_docx(archive),
    ".odt": lambda archive, _: read_odt(archive),
    ".epub": read_epub,
    ".pptx": read_pptx,
}


def read(kind: str, content: bytes, limits: Limits | None = None) -> Reading:
    """What is read of a document of a kind, which is the end of its name."""
    if kind in _PLAIN:
        return _PLAIN[kind](content)
    with tempfile.TemporaryFile() as opened:
        file, bounds = cast(BinaryIO, opened), limits or Limits()
        file.write(content)
        file.seek(0)
        return read_pdf(file, bounds) if kind == ".pdf" else _PACKED[kind](ZipArchive(file, bounds), bounds)


def verdict_on(reading: Reading | Document) -> str:
    """The verdict on what was read."""
    detection, because = DETECTOR.detect(reading.text), reading.uncertain_because
    return of_document(detection, DETECTOR.reader, reading.text, incomplete=False, uncertain_because=because).verdict


def left_out(reading: Reading | Document) -> list[str]:
    """The notes on what was left out, seen or not."""
    return [*(one for one in getattr(reading, "how", ()) if one.endswith("left out")), *reading.notes]


def outcome(reading: Reading) -> str:
    """The verdict, or "noted" for one that is not detected with a note."""
    verdict = verdict_on(reading)
    return "noted" if verdict == "not_detected" and left_out(reading) else verdict


def pieces(text: str, size: int) -> list[str]:
    """A text in pieces of so many letters; whole for 0."""
    return [text[at : at + size] for at in range(0, len(text), size)] if size else [text]
