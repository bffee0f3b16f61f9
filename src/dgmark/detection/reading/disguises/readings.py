"""The ways in which a text is read before it is scored: as it is, and with disguises and its layout undone.

The layout is what stands around the words and how their marks are written. Knows nothing of tokens and keys. Ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgmark.arguments.contents import Content
from dgmark.detection.reading.disguises.inline_markup import without_markup
from dgmark.detection.reading.disguises.line_ends import unwrap
from dgmark.detection.reading.disguises.mapped_text import MappedText
from dgmark.detection.reading.disguises.normalise import normalise
from dgmark.detection.reading.disguises.quoted_lines import without_quoting
from dgmark.detection.reading.disguises.separators import without_separators
from dgmark.detection.reading.disguises.text_columns import one_after_the_other
from dgmark.detection.reading.disguises.typography import write_straight


def _without_signs(mapped: MappedText) -> MappedText:
    return without_separators(mapped.then(without_markup(mapped.text)[0]))


COLUMNS, QUOTING, MARKUP, WRAPPING, TYPOGRAPHY = "columns", "quoting", "markup", "wrapping", "typography"
# what is undone without being asked for, in this order
LAYOUT: dict[str, Callable[[MappedText], MappedText]] = {
    COLUMNS: one_after_the_other,
    QUOTING: without_quoting,
    MARKUP: _without_signs,
    WRAPPING: unwrap,
    TYPOGRAPHY: write_straight,
}


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
        """The range [start, end) of this reading as a range of the text."""
        return (start, end) if self.mapped is None else self.mapped.original(start, end)


def readings(content: Content, steps: Sequence[str] = ()) -> list[TextReading]:
    """What is scored: a text as it is and, if that changes it, with the steps applied and its layout undone; ids as
    they are.

    The layout is what stands around the words: two columns of a page, signs of quoting before lines, signs of markup,
    if they touch more than an eighth of the words, what stands between words in place of a space, line ends that wrap
    lines or stand after each few words, and curly quotation marks, dashes and dots.
    """
    as_it_is = TextReading(content)
    if not isinstance(content, str):
        return [as_it_is]
    mapped, undone = normalise(content, steps)
    for name, undo in LAYOUT.items():
        before, mapped = mapped.text, undo(mapped)
        undone += (name,) * (mapped.text != before)
    return [as_it_is, TextReading(mapped.text, undone, mapped)] if undone else [as_it_is]
