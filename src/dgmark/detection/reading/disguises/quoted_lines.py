"""What a mail program puts around the lines of a text that somebody answers: "> " before them, and a signature.

Knows nothing of tokens and keys. Ours.
"""

import re
from collections.abc import Iterator
from itertools import groupby

from dgmark.detection.reading.disguises.mapped_text import LINE, MappedText

_LEAST = 3  # quoted lines in a row
_SOME = re.compile("^ ?[>|]", re.MULTILINE)
_QUOTED = re.compile(r" ?(?:(?:>|\|(?=[ \t>|]|$))[ \t]?)+")
_SIGNATURE = re.compile(r"\n-- ?\n(?:[^\n]{0,80}(?:\n|\Z)){1,8}\Z")


def without_quoting(mapped: MappedText) -> MappedText:
    """Leave out the signs of quoting before lines, and the signature of a mail."""
    signature = _SIGNATURE.search(mapped.text)
    if signature:
        mapped = mapped.edited([(*signature.span(), "")])
    return mapped.edited(_signs(mapped.text))


def _signs(text: str) -> Iterator[tuple[int, int, str]]:
    if not _SOME.search(text):
        return
    for quoted, run in groupby(_signs_of_lines(text), lambda sign: sign is not None):
        signs = [sign for sign in run if sign is not None]
        if quoted and len(signs) >= _LEAST:
            yield from ((start, end, "") for start, end in signs)


def _signs_of_lines(text: str) -> Iterator[tuple[int, int] | None]:
    """The place of the signs of quoting of each line; None for a line without, such as the row of a table."""
    for line in LINE.finditer(text):
        is_row = line[0].rstrip().endswith("|") and line[0].count("|") > 1
        sign = None if is_row else _QUOTED.match(text, *line.span())
        yield sign.span() if sign else None
