"""Codes that steer a terminal, such as colours, which stand in copies of its output and are not shown."""

import re

from dgmark.detection.reading.disguises.mapped_text import MappedText

_CODES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, moves of the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # other strings
    r"|\x1b[ -/]+[0-~]|\x1b[0-Z\\^_`a-~]"  # character sets and single functions
    r"|[^\n\x08]\x08"  # what the next character is struck over, as in manual pages
)


def without_terminal_codes(text: str) -> str:
    """The text without the codes that steer a terminal."""
    return without_codes(MappedText.of(text)).text


def without_codes(mapped: MappedText) -> MappedText:
    """A text without the codes that steer a terminal, with the places of its characters."""
    return mapped.replaced(_CODES, "") if _may_hold_codes(mapped.text) else mapped


def count_terminal_codes(text: str) -> int:
    """The number of codes that `without_terminal_codes` would leave out."""
    return sum(1 for _ in _CODES.finditer(text)) if _may_hold_codes(text) else 0


def _may_hold_codes(text: str) -> bool:
    """Whether a text has a character without which it holds no code; most texts are passed over by that."""
    return any(sign in text for sign in "\x1b\x9b\x08")
