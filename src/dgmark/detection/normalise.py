"""Undo what changes a text's tokens but not its words: disguises, such as look-alike letters, and hard wrapping.

Each step against disguises is a function in a dict. `readings` gives the unchanged text first, and then the text with
all of it undone and the names of the steps that changed it. Knows nothing of tokens and keys. Ours.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

from dgmark.arguments import several, shown
from dgmark.contents.accepted import Content
from dgmark.errors import SettingsError
from dgmark.extras import needed_extra

# format characters that show nothing; joiners are kept beside letters that need them
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
    "|[\ufe00-\ufe0f]+"
)
_VARIATION_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10)))
_JOINER = re.compile("(?<=[\\x00-\\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\\x00-\\x7f])")
_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»＂", '"') | dict.fromkeys("‘’‚‛‹›＇", "'"))
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\t ]+")
_LINE_ENDS = re.compile("\r\n?|[\u0085\u2028\u2029]")
_WORD, _ASCII_LETTER = re.compile(r"\w+"), re.compile("[A-Za-z]")
WRAPPING = "wrapping"
# a text is hard-wrapped if its lines are so wide, and as many of them, and such a share of them, end for want of room
_WIDTHS = range(40, 101)
_LEAST_WRAPPED, _SHARE_WRAPPED = 3, 1 / 3


def nfc(text: str) -> str:
    """Unicode's composed form. A run of 64 or more combining marks, which no text has, is left as it is."""
    if text.isascii():
        return text
    pieces = _stacked_marks().split(text)
    return "".join(piece if index % 2 else unicodedata.normalize("NFC", piece) for index, piece in enumerate(pieces))


@cache
def _stacked_marks() -> re.Pattern[str]:
    """Runs of combining marks so long that putting them in order, which takes the square of their number, shows."""
    marks = "".join(mark for mark in map(chr, range(sys.maxunicode + 1)) if unicodedata.combining(mark))
    return re.compile(f"([{re.escape(marks)}]{{64,}})")


def remove_invisible(text: str) -> str:
    """Leave out zero-width and direction characters."""
    return _JOINER.sub("", _INVISIBLE.sub(_unless_presentation, text))


def _unless_presentation(run: re.Match[str]) -> str:
    """Nothing; but variation selectors that no letter stands beside stay: an emoji keeps its presentation."""
    if run[0][0] not in _VARIATION_SELECTORS:
        return ""
    before, behind = run.string[run.start() - 1 : run.start()], run.string[run.end() : run.end() + 1]
    return "" if _WORD.match(before) or _WORD.match(behind) else run[0]


def fold_homoglyphs(text: str) -> str:
    """Replace look-alike letters by ASCII letters in words that also hold ASCII letters; other words stay unchanged.

    A word of look-alikes alone is taken for what the words around it are.

    Raises:
        MissingExtra: the package `confusable-homoglyphs` is not installed.
    """
    with needed_extra("normalise", "finding look-alike letters", "confusable-homoglyphs"):
        from confusable_homoglyphs import confusables
    if text.isascii():
        return text

    def folded(word: str) -> str:
        for found in confusables.is_confusable(word, greedy=True, preferred_aliases=["latin"]) or ():
            letter = found["character"]
            alike = next((glyph["c"] for glyph in found["homoglyphs"] if glyph["c"].isascii()), None)
            if alike and not letter.isascii():
                # Unicode's table has a capital I as a look-alike of l
                word = word.replace(letter, "I" if alike == "l" and letter.isupper() else alike)
        return word

    pieces = re.split(f"({_WORD.pattern})", text)
    words = pieces[1::2]
    alike = [word if word.isascii() else folded(word) for word in words]
    latin = [
        True if _ASCII_LETTER.search(word) else None if other.isascii() else False
        for word, other in zip(words, alike, strict=True)
    ]
    around = zip(_last_known(latin), reversed(_last_known(latin[::-1])), strict=True)
    fold = [one or (one is None and {True} == {*both} - {None}) for one, both in zip(latin, around, strict=True)]
    pieces[1::2] = [other if yes else word for word, other, yes in zip(words, alike, fold, strict=True)]
    return "".join(pieces)


def _last_known(values: list[bool | None]) -> list[bool | None]:
    """Each value, or the last one before it if it is None."""
    known: list[bool | None] = [None]
    for value in values:
        known.append(known[-1] if value is None else value)
    return known[1:]


def fold_quotes(text: str) -> str:
    """Replace quotation marks and apostrophes by straight ones."""
    return text.translate(_QUOTES)


def fold_whitespace(text: str) -> str:
    """Replace each run of spaces of any kind by one plain space, and each line end by a plain one."""
    return _SPACES.sub(" ", _LINE_ENDS.sub("\n", text))


STEPS: dict[str, Callable[[str], str]] = {
    "nfc": nfc,
    "invisible": remove_invisible,
    "homoglyphs": fold_homoglyphs,
    "quotes": fold_quotes,
    "whitespace": fold_whitespace,
}


def unwrap(text: str) -> str:
    """Replace the line ends of hard wrapping by spaces, if a text shows it; offsets stay the same.

    The width is that of the longest line, lines of URLs and the like apart. Where the first word of the next line had
    no room, the line was wrapped; where it had, somebody ended the line.
    """
    lines = text.split("\n")
    sizes = [len(line.rstrip()) for line in lines]
    width = max((size for size in sizes if size < _WIDTHS.stop), default=0)
    if width not in _WIDTHS:
        return text
    ends, within = [], 0
    for line, size, after in zip(lines, sizes, lines[1:], strict=False):
        inside = 0 < size <= width and bool(after[:1].strip())
        needed = size + 1 + len(after[: width + 1].split(" ", 1)[0])
        within += inside
        ends.append(" " if inside and " " in line.strip() and needed > width else "\n")
    wrapped = ends.count(" ")
    if wrapped < _LEAST_WRAPPED or wrapped < _SHARE_WRAPPED * within:
        return text
    return "".join(map("".join, zip(lines, [*ends, ""], strict=True)))


def normalise(text: str, steps: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Apply steps, which `check_steps` accepts, in their fixed order.

    Returns:
        The normalised text, and the names of the steps that changed it.
    """
    changed = []
    for name, step in STEPS.items():
        if name in steps and (after := step(text)) != text:
            text = after
            changed.append(name)
    return text, tuple(changed)


def readings(content: Content, steps: Sequence[str] = ()) -> list[tuple[Content, tuple[str, ...]]]:
    """What is scored: a text as it is and, if that changes it, with the steps applied and hard wrapping undone.

    Returns:
        One or two readings, each with the names of what was undone. Ids have one.
    """
    if not isinstance(content, str):
        return [(content, ())]
    changed, undone = normalise(content, steps)
    unwrapped = unwrap(changed)
    undone += (WRAPPING,) * (unwrapped != changed)
    return [(content, ()), (unwrapped, undone)] if undone else [(content, ())]


def check_steps(steps: Sequence[str]) -> None:
    """Refuse unknown steps, and steps whose packages are missing.

    Raises:
        SettingsError: no step has one of these names.
        MissingExtra: a package that a step needs is not installed.
    """
    for name in several(steps, "normalisation steps"):
        if not isinstance(name, str) or name not in STEPS:
            raise SettingsError(f"normalisation {shown(name)} is not one of: all, {', '.join(STEPS)}")
        STEPS[name]("")
