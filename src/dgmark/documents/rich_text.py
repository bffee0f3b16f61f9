"""RTF to text, through striprtf. It reads no notes, and no pictures."""

import re

from dgmark.documents.flow import Flow
from dgmark.documents.reading import MissingLibrary, Reading, Refusal

# striprtf writes "|" for the end of a table's cell; a paragraph instead keeps "|" for texts that hold it
_CELL = re.compile(r"(\\\\)|\\(?:nest)?cell(?![a-z])")
_BULLET = re.compile("^[ \t]*[\uf000-\uf0ff•◦▪‣·][ \t]+", re.MULTILINE)


def read_rtf(content: bytes) -> Reading:
    """Read an RTF file.

    Raises:
        Refusal: it is damaged.
    """
    try:
        from striprtf.striprtf import rtf_to_text
    except ModuleNotFoundError as error:
        raise MissingLibrary("striprtf", "An RTF file") from error
    if not content.rstrip(b"\0\r\n \t").endswith(b"}"):
        raise Refusal("is cut off: its last bracket is missing")
    source = _CELL.sub(lambda found: found[1] or "\\par ", content.decode("latin-1"))
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except Exception as error:  # striprtf has no error of its own for damaged files
        raise Refusal(f"is damaged: {type(error).__name__}: {error}") from error
    flow = Flow()
    for line in without_bullets(text).split("\n"):
        flow.add(line.strip(), exact=True)
        flow.end_line()
    notes = ("its footnotes are left out",) if "{\\footnote" in source else ()
    return Reading(flow.text, notes)


def without_bullets(text: str) -> str:
    """The text without the bullets of lists, which the other kinds do not hold as text."""
    return _BULLET.sub("", text)
