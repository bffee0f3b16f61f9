"""What a parser is given and gives back: limits, and the text with notes or the reason why there is none.

The parser's process imports this and none of the package above it.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dgmark.documents.completeness import Piece, lacking

MB = 2**20
PAGE_CHARS = 2000  # a page of text has about so many characters
_PAGE_AREA = 595.0 * 842  # of a page of A4, in square points
_SHOWN = 10  # notes that an error lists
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
        lacking: whether so much was not read that a text without the mark cannot be called that: more than a tenth of
            the letters, 400 of them in a run, or what stood in a damaged part.
        pages: number of pages or chapters, where the kind has them.
        rows: of a table, the id (or the place) and the text of each row.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    pages: int | None = None
    rows: tuple[tuple[str, str], ...] = ()
    how: tuple[str, ...] = ()
    lacking: bool = False


class Unread:
    """Counts what readers of a document see and its parser does not read."""

    # shares of a page: a smaller picture is a stamp or a sign; a larger one may be a picture of text
    STAMP, PICTURE = 0.02, 0.4
    # of the letters, the share that may be unread where a text is called not marked; and those in one run
    SHARE, RUN = 0.1, 400
    UNKNOWN = 100  # the characters that a part of unknown size may hold, such as a picture

    def __init__(self) -> None:
        self._places: dict[str, list[int]] = {}
        self._counts: Counter[str] = Counter()
        self._weight = 0.0
        self.held: list[Piece] = []  # all texts that the file holds, in its order
        self.damaged = False  # whether the file held more than can be known

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

    def add_picture(self, width: float | None, height: float | None, what: str = "pictures") -> None:
        """Count a picture of this size in points; None if it is unknown."""
        share = 0.0 if width is None or height is None else width * height / _PAGE_AREA
        weight = PAGE_CHARS * share if share > self.PICTURE else 0
        self.add(what, int(not 0 < share < self.STAMP), weight=weight if share else self.UNKNOWN)

    def reading(self, text: str, *, besides: str = "", ascii_only: bool = False, **fields: Any) -> Reading:
        """The reading of a text, with notes on what was counted and on what the text lacks of `held`.

        Args:
            text: the text that was read.
            besides: what was left out on purpose.
            ascii_only: see `lacking`.
            fields: further fields of the reading.

        Raises:
            Refusal: most of the document was not read.
        """
        lack = lacking(f"{text}\n{besides}", self.held, ascii_only=ascii_only)
        notes = (
            *(self._note(what, count) for what, count in self._counts.items() if count),
            *(f"{count:,} letters in {place} were not read" for place, count in lack.places.most_common()),
        )
        if self._weight + lack.places.total() > len(text):
            read = f"{len(text)} characters of text" if text else "no text"
            raise Refusal(
                f"is not read for the most part: {'; '.join(notes[:_SHOWN])}; it holds {read} beside that. Give its "
                "text as plain text; pages that are pictures, as a scanner makes them, need a program for character "
                "recognition (OCR) first"
            )
        much = self.damaged or lack.share > self.SHARE or lack.longest >= self.RUN
        return Reading(text, notes, lacking=much, **fields)

    def _note(self, what: str, count: int) -> str:
        pages = ", ".join(map(str, self._places[what][:20]))
        named = what if count > 1 else _PLURAL.sub("", what, count=1)
        return f"{count} {named}{f' (page {pages})' if pages else ''} {'are' if count > 1 else 'is'} left out"


class Refusal(Exception):
    """The document cannot be read. The message continues a sentence that begins with its name."""
