"""What a parser is given and gives back: limits, and the text with notes or the reason why there is none.

The parser's process imports this and none of the package above it.
"""

from dataclasses import dataclass

MB = 2**20
PAGE_CHARS = 2000  # a page of text has about so many characters


@dataclass(frozen=True)
class Limits:
    """The limits of one document; beyond any of them it is an error, and no part of it is scored.

    Attributes:
        file_bytes: size of the file.
        unpacked_bytes: size of all parts of a packed file (.docx, .pptx, .odt, .epub, .xlsx) once unpacked.
        parts: number of parts of a packed file.
        pages: pages of a PDF, chapters of an EPUB, slides of a presentation.
        text_bytes: size of the text that is read, as UTF-8.
        seconds: time of the parser.
        memory_bytes: memory of the parser's process, where the system can limit it (not on macOS and Windows).
    """

    file_bytes: int = 128 * MB
    unpacked_bytes: int = 256 * MB
    parts: int = 20_000
    pages: int = 5_000
    text_bytes: int = 64 * MB
    seconds: float = 60
    memory_bytes: int = 2048 * MB


@dataclass(frozen=True)
class Reading:
    """The text of a document.

    Attributes:
        text: in reading order, paragraphs on lines of their own. Empty for a table.
        notes: what was left out.
        how: how the text was read, where this is a guess.
        uncertain_because: why a text without the mark cannot be called that, if so: "unread" (more than a tenth of the
            letters were not read, or 400, or a part of unknown size), "not_shown" (as many were read that the document
            does not show) or "markup" (signs of markup touch more than a quarter of the words).
        pages: number of pages, chapters or slides, where the kind has them.
        rows: of a table, the id (or the place) and the text of each row.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    pages: int | None = None
    rows: tuple[tuple[str, str], ...] = ()
    how: tuple[str, ...] = ()
    uncertain_because: str | None = None


class Refusal(Exception):
    """The document cannot be read. The message continues a sentence that begins with its name."""
