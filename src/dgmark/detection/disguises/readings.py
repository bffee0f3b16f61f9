"""The ways in which a text is read before it is scored: as it is, and with disguises and its layout undone.

The layout is what stands around the words: signs of markup, and line ends. Knows nothing of tokens and keys. Ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dgmark.contents.accepted import Content
from dgmark.detection.disguises.inline_markup import without_markup
from dgmark.detection.disguises.line_ends import unwrap
from dgmark.detection.disguises.mapped_text import MappedText
from dgmark.detection.disguises.normalise import normalise
from dgmark.detection.disguises.separators import without_separators

MARKUP, WRAPPING = "markup", "wrapping"
LAYOUT = frozenset((MARKUP, WRAPPING))  # what is undone without being asked for


@dataclass(frozen=True)
class TextReading:
    """What is scored of a text in one of the ways in which it is read.

    Attributes:
        content: the text or the ids.
        undone: what was undone, see `readings`.
        mapped: the places of its characters in the text; None if nothing was undone.
    """

    content: Content
    undone: tuple[str, ...] = ()
    mapped: MappedText | None = None

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The range [start, end) of this reading as a range of the text (without steps)."""
        return (start, end) if self.mapped is None else self.mapped.original(start, end)


def readings(content: Content, steps: Sequence[str] = ()) -> list[TextReading]:
    """What is scored: a text as it is and, if that changes it, with the steps applied and its layout undone.

    The layout is what stands around the words: signs of markup, if they touch more than an eighth of the words, what
    stands between words in place of a space, and line ends that wrap lines or stand behind each few words.

    Returns:
        One or two readings. Ids have one.
    """
    as_it_is = TextReading(content)
    if not isinstance(content, str):
        return [as_it_is]
    changed, undone = normalise(content, steps)
    mapped = without_separators(without_markup(changed)[0])
    undone += (MARKUP,) * (mapped.text != changed)
    unwrapped = unwrap(mapped)
    undone += (WRAPPING,) * (unwrapped.text != mapped.text)
    return [as_it_is, TextReading(unwrapped.text, undone, unwrapped)] if undone else [as_it_is]
