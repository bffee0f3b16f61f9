"""What a parser is given and gives back: limits, and the text with notes or the reason why there is none.

The parser's process imports this and none of the package above it.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

# what still has to be done with a text: nothing; its signs of markup, if it has some, stand in it; its cells are to be
# found; its cells are in `tables`
Form = Literal["text", "as it stands", "delimited", "tables"]
MB = 2**20
LOCKED = "is encrypted with a password: save it without one"
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


class Table(NamedTuple):
    """The cells of a sheet, or of objects with equal fields.

    Attributes:
        header: the names of its columns.
        rows: the place, such as "Sheet1:2", and the cells of each other row that is not blank.
    """

    header: list[str]
    rows: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class Reading:
    """The text of a document.

    Attributes:
        text: in reading order, paragraphs on lines of their own. Empty where there are tables.
        form: what the text is, and what still has to be done with it (`Form`).
        tables: the tables of a workbook, or of JSON, one of which has the column that was asked for.
        notes: what was left out.
        how: how the text was read, where this is a guess.
        uncertain_because: why a text without the mark cannot be called that, if so: "unread" (more than a tenth of the
            letters were not read, or 400, or a part of unknown size), "not_shown" (as many were read that the document
            does not show).
        pages: number of pages, chapters, slides or sheets, where the kind has them.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    pages: int | None = None
    form: Form = "text"
    tables: tuple[Table, ...] = ()
    how: tuple[str, ...] = ()
    uncertain_because: str | None = None


def is_column(cell: str, column: str) -> bool:
    """Whether a cell of a header names this column: blanks around it and case do not matter."""
    return cell.strip().casefold() == column.strip().casefold()


class Refusal(Exception):
    """The document cannot be read. The message continues a sentence that begins with its name."""
