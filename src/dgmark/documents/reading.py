"""What a parser is given and gives back: limits, and the text with notes or the reason why there is none.

The parser's process imports this and none of the package above it.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

MB = 2**20
PAGE_CHARS = 2000  # a page of text has about so many characters
_PAGE_AREA = 595.0 * 842  # of a page of A4, in square points
_PLURAL = re.compile(r"s\b")


@dataclass(frozen=True)
class Limits:
    """The limits of one document; beyond any of them it is an error, and no part of it is scored.

    Attributes:
        file_bytes: size of the file.
        unpacked_bytes: size of all parts of a packed file (.docx, .odt, .epub, .xlsx) once unpacked.
        parts: number of parts of a packed file.
        pages: pages of a PDF, chapters of an EPUB.
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
        pages: number of pages or chapters, where the kind has them.
        rows: of a table, the id (or the place) and the text of each row.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    pages: int | None = None
    rows: tuple[tuple[str, str], ...] = ()
    how: tuple[str, ...] = ()


class Unread:
    """Counts what readers of a document see and its parser does not read."""

    # shares of a page: a smaller picture is a stamp or a sign; a larger one may be a picture of text
    STAMP, PICTURE = 0.02, 0.4
    UNKNOWN = 100  # the characters that a part of unknown size may hold, such as a picture

    def __init__(self) -> None:
        self._places: dict[str, list[int]] = {}
        self._counts: Counter[str] = Counter()
        self._weight = 0.0

    def add(self, what: str, count: int = 1, *, weight: float = 0, place: int | None = None) -> None:
        """Count parts that are not read.

        Args:
            what: what they are, in the plural.
            count: how many.
            weight: the characters of the document's own text that they may hold.
            place: the number of the page where they stand.
        """
        self._counts[what] += count
        self._weight += weight
        self._places.setdefault(what, []).extend([] if place is None else [place])

    def add_text(self, where: str, text: str, *, own: bool = True) -> None:
        """Count the characters of a text; `own` says whether it may be the document's own text."""
        size = len(text.strip())
        self.add(f"characters of {where}", size, weight=size * own)

    def add_picture(self, width: float | None, height: float | None, what: str = "pictures") -> None:
        """Count a picture of this size in points; None if it is unknown."""
        share = 0.0 if width is None or height is None else width * height / _PAGE_AREA
        weight = PAGE_CHARS * share if share > self.PICTURE else 0
        self.add(what, int(not 0 < share < self.STAMP), weight=weight if share else self.UNKNOWN)

    def reading(self, text: str, **fields: Any) -> Reading:
        """The reading of a text, with notes on what was counted.

        Raises:
            Refusal: most of the document was not read.
        """
        notes = tuple(self._note(what, count) for what, count in self._counts.items() if count)
        if self._weight > len(text):
            read = f"{len(text)} characters of text" if text else "no text"
            raise Refusal(
                f"is not read for the most part: {'; '.join(notes)}; it holds {read} beside that. Give its text as "
                "plain text; pages that are pictures, as a scanner makes them, need a program for character "
                "recognition (OCR) first"
            )
        return Reading(text, notes, **fields)

    def _note(self, what: str, count: int) -> str:
        pages = ", ".join(map(str, self._places[what][:20]))
        named = what if count > 1 else _PLURAL.sub("", what, count=1)
        return f"{count} {named}{f' (page {pages})' if pages else ''} {'are' if count > 1 else 'is'} left out"


class Refusal(Exception):
    """The document cannot be read. The message continues a sentence that begins with its name."""
