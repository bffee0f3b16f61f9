"""What a parser gives back: the text with notes, or why there is none.

The child process imports this and none of the package above it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """The text of a document.

    Attributes:
        text: in reading order, paragraphs on lines of their own. Empty for a table.
        notes: what was left out, and what the reader should know.
        pages: number of pages or chapters, where the kind has them.
        rows: of a table, the id (or the place) and the text of each row.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    pages: int | None = None
    rows: tuple[tuple[str, str], ...] = ()


class Refusal(Exception):
    """The document cannot be read. The message continues a sentence that begins with its name."""


class MissingLibrary(Exception):
    """A library that reads this kind is not installed.

    Args:
        library: what is missing.
        purpose: what needs it, as the subject of a sentence.
    """

    def __init__(self, library: str, purpose: str) -> None:
        super().__init__(library, purpose)
        self.library, self.purpose = library, purpose
