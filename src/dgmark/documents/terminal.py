"""Codes that steer a terminal, such as colours, which stand in copies of its output and are not shown."""

import re

TERMINAL_CODES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, moves of the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # other strings
    r"|\x1b[ -/]+[0-~]|\x1b[0-Z\\^_`a-~]"  # character sets and single functions
    r"|[^\n\x08]\x08"  # what the next character is struck over, as in manual pages
)


def without_terminal_codes(text: str) -> str:
    """The text without the codes that steer a terminal."""
    return TERMINAL_CODES.sub("", text) if "\x1b" in text or "\x9b" in text or "\x08" in text else text
