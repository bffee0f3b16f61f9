"""Line ends that belong to a text's layout, read as spaces: hard wrapping, and words that stand on lines of their own.

They change a text's tokens but not its words. Knows nothing of tokens and keys. Ours.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from dgmark.detection.reading.disguises.mapped_text import LINE, MappedText

# a text is hard-wrapped if its lines are so wide, and as many of them, and such a share of them, end for want of room
_WIDTHS = range(40, 101)
_LEAST_WRAPPED, _SHARE_WRAPPED = 3, 1 / 3
# lines of one word are a text if so many follow each other, and such a share of them are words
_LEAST_WORDS, _SHARE_WORDS = 16, 3 / 4
_FEW_WORDS = 4
_SHARE_LOWER = 1 / 2  # of lines of a few words, the share that go on with the sentence of the line before
_LONGEST = 80  # characters of a line of a few words
_PIECE = 8  # characters of the longest line that may hold a piece of a text that was cut without regard to words
_SHARE_CUT = 0.8  # of the lines of such a text, the least share that are equally long
# the word of a line, after the sign of a list
_ALONE = re.compile(r"[^\S\n]*(?:(?:[-*+>•|]|#{1,6}|\d{1,3}[.)])[^\S\n]+)?(\S{1,40})[^\S\n]*\|?")
_FEW = re.compile(rf"[^\S\n]*(\S{{1,40}}(?:[^\S\n]+\S{{1,40}}){{0,{_FEW_WORDS - 1}}})[^\S\n]*")
_WORD = re.compile(r"[^\w\s]{0,3}[^\W\d_]+(?:['’-][^\W\d_]+)*[^\w\s]{0,3}")


def unwrap(mapped: MappedText) -> MappedText:
    """Read line ends that belong to the layout as spaces, if the text shows them."""
    for find in (_wrapped, _words_alone, _short_lines):
        mapped = mapped.edited(find(mapped.text))
    return mapped


def _wrapped(text: str) -> Iterator[tuple[int, int, str]]:
    """The line ends of hard wrapping.

    The width is that of the longest line, lines of URLs and the like apart. Where the first word of the next line had
    no room, the line was wrapped; where it had, somebody ended the line.
    """
    lines = text.split("\n")
    sizes = [len(line.rstrip()) for line in lines]
    width = max((size for size in sizes if size < _WIDTHS.stop), default=0)
    if width not in _WIDTHS:
        return
    ends, within, place = [], 0, -1
    for line, size, after in zip(lines, sizes, lines[1:], strict=False):
        place += len(line) + 1
        inside = 0 < size <= width and bool(after[:1].strip())
        needed = size + 1 + len(after[: width + 1].split(" ", 1)[0])
        within += inside
        if inside and " " in line.strip() and needed > width:
            ends.append(place)
    if len(ends) >= _LEAST_WRAPPED and len(ends) >= _SHARE_WRAPPED * within:
        yield from ((end, end + 1, " ") for end in ends)


# --- words on lines of their own


class _Line(NamedTuple):
    """A line of one word, or of a few letters.

    It has its number among all lines, and the characters of the word and of the line. A line that holds other than one
    word has its own start and end as those of the word.
    """

    number: int
    start: int
    end: int
    line_start: int
    line_end: int


def _words_alone(text: str) -> Iterator[tuple[int, int, str]]:
    """The line ends between words that stand on lines of their own, also with empty lines between them.

    A text that was cut into pieces of a few letters is put together without spaces.
    """
    for run in _runs(text, _ALONE, _PIECE):
        usual = _usual_distance(run)
        size = _piece_size([line.line_end - line.line_start for line in run])
        words = [text[line.start : line.end] for line in run]
        if size and statistics.mean(any(map(str.isalpha, word)) for word in words) >= _SHARE_WORDS:
            for line, after in pairwise(run):
                whole = line.line_end - line.line_start == size and after.number - line.number == usual
                yield line.line_end, after.line_start, "" if whole else " "
        elif not size and _are_words(words) and not _is_list(words):
            yield run[0].line_start, run[0].start, ""
            for line, after in pairwise(run):
                yield line.end, after.start, " " if after.number - line.number == usual else "\n"


def _runs(text: str, words: re.Pattern[str], piece: int) -> Iterator[list[_Line]]:
    """The lines that `_lines_of` finds, in runs of at least sixteen."""
    for _, lines in groupby(_lines_of(text, words, piece), lambda line: line is not None):
        run = [line for line in lines if line]
        if len(run) >= _LEAST_WORDS:
            yield run


def _lines_of(text: str, words: re.Pattern[str], piece: int) -> Iterator[_Line | None]:
    """The lines that are such words, or have at most so many characters; None for each other that is not empty."""
    for number, line in enumerate(LINE.finditer(text)):
        start, end = line.span()
        if line[0].strip():
            word = words.fullmatch(text, start, end) if end - start < _LONGEST else None
            if word:
                yield _Line(number, *word.span(1), start, end)
            else:
                yield _Line(number, start, end, start, end) if end - start <= piece else None


def _short_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """The line ends of a text in lines of one to four words, which break its sentences anywhere."""
    for lines in _runs(text, _FEW, 0):
        usual = _usual_distance(lines)
        texts = [text[line.start : line.end] for line in lines]
        lower = statistics.mean(line.lstrip("\"'“‘(")[:1].islower() for line in texts)
        words = [word for line in texts for word in line.split()]
        if lower >= _SHARE_LOWER and _are_words(words) and not _is_list(texts):
            for line, after in pairwise(lines):
                yield line.end, after.start, " " if after.number - line.number == usual else "\n"


def _usual_distance(run: Sequence[_Line]) -> int:
    return Counter(after.number - line.number for line, after in pairwise(run)).most_common(1)[0][0]


def _are_words(words: Sequence[str]) -> bool:
    return statistics.mean(bool(_WORD.fullmatch(word)) for word in words) >= _SHARE_WORDS


def _piece_size(sizes: Sequence[int]) -> int | None:
    """The length of the pieces of a text that was cut into equally long pieces; None if it was not."""
    size, count = Counter(sizes).most_common(1)[0]
    return size if size == max(sizes) <= _PIECE and count >= _SHARE_CUT * len(sizes) else None


def _is_list(words: Sequence[str]) -> bool:
    """Whether words are a list of names: in the order of the alphabet, or each with a comma, as in a program."""
    folded = [word.casefold() for word in words]
    return folded == sorted(folded) or sum(word.endswith(",") for word in words) >= _SHARE_WORDS * len(words)
