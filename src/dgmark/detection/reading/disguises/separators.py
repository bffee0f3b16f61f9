"""What stands between the words of a text in place of a space, such as `_`, or `] [` in `[a] [b] [c]`, read as a space.

No language is known: what is the same between 24 words in a row, and is not a space or comma, is not part of a text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from dgmark.detection.reading.disguises.mapped_text import MappedText

_LEAST = 24  # words in a row between which the same must stand
_SHARE_NAMES = 1 / 8  # of all words, the share of one that is the name of an element and no word; "the" is 1 of 14
_CANDIDATES = 8  # of what stands between words, the commonest that are tried
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PIECES = re.compile(f"({_WORD.pattern})")
_DIGITS = re.compile(r"\d+")
# what has rules of its own: commas, spaces, words, line ends and the signs of rows, characters that show nothing
_SHOWS_NOTHING = "\xad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef"
_ORDINARY = re.compile(
    rf"[ ,;，、؛]+|(?:[^\W\d_]|[^\S\t])*|[^\S\t]*[{_SHOWS_NOTHING}]+[^\S\t]*|.*[\n\x1b\b].*", re.DOTALL
)


def without_separators(mapped: MappedText) -> MappedText:
    """Read what stands between many words in place of a space as a space."""
    return mapped.edited(_separators(mapped.text))


def _separators(text: str) -> Iterator[tuple[int, int, str]]:
    pieces = _PIECES.split(text)
    names = _names_in(pieces[1::2])
    # most texts end here, without a look at the places of their words
    if not names and not _often_between(pieces[2:-1:2]):
        return
    words = [word for word in _WORD.finditer(text) if word[0] not in names]
    gaps = [(before.end(), behind.start()) for before, behind in pairwise(words)]
    between = [_DIGITS.sub("0", text[start:end]) for start, end in gaps]
    taken: dict[int, tuple[int, int, str]] = {}
    for separator in _often_between(between):
        pattern = re.compile(re.escape(separator).replace("0", r"\d+"))
        for stands, run in groupby(range(len(gaps)), lambda number: separator in between[number]):  # noqa: B023
            numbers = list(run)
            if not stands or len(numbers) < _LEAST:
                continue
            for number in numbers:
                place = pattern.search(text, *gaps[number])
                if place and number not in taken:
                    taken[number] = (place.start(), place.end(), " ")
    yield from (taken[number] for number in sorted(taken))


def _names_in(words: Sequence[str]) -> set[str]:
    """The words that are so frequent that they are names of elements."""
    least = max(_LEAST, _SHARE_NAMES * len(words))
    return {name for name, count in Counter(words).items() if count >= least}


def _often_between(between: Iterable[str]) -> list[str]:
    """What often stands between words and is not a space or comma, each number as 0; the commonest first."""
    counts = Counter[str]()
    for gap, count in Counter(between).items():
        counts[_DIGITS.sub("0", gap)] += count
    unusual = Counter({gap: count for gap, count in counts.items() if not _ORDINARY.fullmatch(gap)})
    return [gap for gap, count in unusual.most_common(_CANDIDATES) if count >= _LEAST]
