"""Signs that word processors, phones and web pages put in place of those that were typed, written straight again.

Curly quotation marks, dashes, the three dots in one, and ligatures. A tokenizer splits words beside them in another
way, so that the pairs around them change. Knows nothing of tokens and keys. Ours.
"""

import re
from collections.abc import Iterator

from dgmark.detection.reading.disguises.mapped_text import MappedText

_SIGNS = re.compile("[“”„‟‘’‚‛—–…ﬀ-ﬄ]")
_LEAST = 1 / 64  # of the words, as many signs: fewer cost a mark less than a second reading does
_STRAIGHT = dict.fromkeys("“”„‟", '"') | dict.fromkeys("‘’‚‛", "'") | {"—": "--", "…": "..."}
_STRAIGHT |= {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"}


def write_straight(mapped: MappedText) -> MappedText:
    """Write curly quotation marks, dashes, dots and ligatures as they are typed, in a text that has them."""
    found = list(_SIGNS.finditer(mapped.text))
    if len(found) < max(1.0, _LEAST * len(mapped.text.split())):
        return mapped
    return mapped.edited(_typed(mapped.text, found))


def _typed(text: str, found: list[re.Match[str]]) -> Iterator[tuple[int, int, str]]:
    for sign in found:
        start, end = sign.span()
        yield start, end, _STRAIGHT.get(sign[0]) or _dash(text[start - 1 : start], text[end : end + 1])


def _dash(before: str, after: str) -> str:
    """The hyphens of an en dash: one between spaces or numbers, and two that join words, as in "home--at last"."""
    return "--" if before.isalpha() and after.isalpha() else "-"
