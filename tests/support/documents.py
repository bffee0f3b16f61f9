"""The corpus of documents that LibreOffice made, and what each is made from."""

from pathlib import Path

from dgmark.watermark.key import WatermarkKey
from support.known_keys import known_key

CORPUS = Path(__file__).parent.parent / "documents" / "corpus"
NOTE = "A note at the foot of the page."
_LONG = ("columns", "layout", "pages", "table")


def corpus_key() -> WatermarkKey:
    """The key that the texts of the corpus were generated with."""
    return known_key("documents", code_length=32)


def source_of(name: str) -> str:
    """The text that a document of the corpus was made from."""
    stem = "long" if Path(name).stem in _LONG else "story"
    return (CORPUS / f"{stem}.txt").read_text(encoding="utf-8").strip()
