"""The corpus of documents that LibreOffice made, and what each is made from."""

import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from dgmark.rows.documents import Document, document_of, read_opened
from dgmark.rows.tables import RowReading
from dgmark.watermark.key import WatermarkKey
from dgmark_documents.reading import Reading
from support.known_keys import known_key

CORPUS = Path(__file__).parents[2] / "documents" / "tests" / "corpus"
NOTE = "A note at the foot of the page."
_LONG = ("columns", "layout", "pages", "table")


def corpus_key() -> WatermarkKey:
    """The key that the texts of the corpus were generated with."""
    return known_key("documents", code_length=32)


def source_of(name: str) -> str:
    """The text that a document of the corpus was made from."""
    stem = "long" if Path(name).stem in _LONG else "story"
    return (CORPUS / f"{stem}.txt").read_text(encoding="utf-8").strip()


def document_from(content: bytes, name: str, column: str | None = None) -> Document:
    """The document of a file with this content and name."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return read_opened(cast(BinaryIO, file), name, RowReading(column))


def document_of_reading(reading: Reading, column: str | None = None) -> Document:
    """The document that a reading becomes."""
    return document_of("the file", "a kind", reading, RowReading(column))
