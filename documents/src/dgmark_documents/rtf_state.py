"""What the control words of RTF mean for the text behind them: whether it is seen, and in which characters it is."""

import codecs
import re
from dataclasses import dataclass

from dgmark_documents.elements import look_alike

_TINY = 6  # half-points; letters of at most this size cannot be read
_SOLID = 9_000  # hundredths of a percent: a pattern that covers most of what is behind it
_RAISED = 0.65  # the size of raised and lowered letters
_FAR = 400  # half-points: letters that are raised or lowered by so much stand off their line
_TINY_SCALE = 6  # percent of the usual width
_TINY_LINE = 60  # twips between lines of which each covers the one above
_LONGEST = 15_840  # twips: half of the longest side of a page
_SIGN_FONT = re.compile(r"(symbol|webdings|wingdings( [23])?|zapf ?dingbats|marlett|mt extra)\b", re.IGNORECASE)
# Windows' code pages of the character sets of fonts
_CODE_PAGES = {
    0: 1252, 77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255,
    178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850,
}  # fmt: skip
_NAMES = {10000: "mac_roman", 65001: "utf-8", 1361: "johab"}
SIGNS = "signs"  # the encoding of fonts whose letters are signs


def encoding_of(code_page: int) -> str:
    """Python's name of a code page of Windows; that of Western Europe if it has none."""
    name = _NAMES.get(code_page, f"cp{code_page}")
    try:
        codecs.lookup(name)
    except LookupError:
        return "cp1252"
    return name


@dataclass
class Font:
    """A font of the table of fonts, as far as it was read."""

    charset: int | None = None
    code_page: int | None = None
    name: str = ""

    def encoding(self, default: str) -> str:
        """The encoding of texts in it."""
        if self.charset == 2:
            return SIGNS if _SIGN_FONT.match(self.name.strip()) else "cp1252"
        if self.code_page is not None:
            return encoding_of(self.code_page)
        if self.charset in (None, 1):
            return default
        return encoding_of(_CODE_PAGES.get(self.charset or 0, 1252))


@dataclass
class State:
    r"""What holds in a group; groups within it begin with a copy.

    Attributes:
        place: where its text goes; empty for none.
        outer_place: of a group that holds a text twice, where the newer one goes.
        word: the first control word of this group.
        table: the table of the file that the group belongs to, such as "fonttbl"; empty for none.
        closed: whether nothing in it is read.
        is_copy: whether it is a copy for old readers.
        skip: the characters that stand for one `\u` in old readers.
        hidden: whether its text is hidden.
        deleted: whether its text is a tracked deletion.
        gone: whether it belongs to a shape that is hidden.
        size: the size of letters in half-points, and `scale` their width in percent.
        line: the height of lines in twips, and `by_lines` whether it is a share of the usual one, in 240ths.
        colour: the number of the colour of letters; the next six say what is behind them: colours, and patterns in
            hundredths of a percent.
        spacing: what is added between letters, in twips.
        high: the height of the frame in twips.
        raised: whether letters are raised or lowered.
        covered: whether the cells of the row are covered by others.
        unseen: why nothing here can be seen.
    """

    place: str = "body"
    outer_place: str = "body"
    word: str = ""
    table: str = ""
    closed: bool = False
    is_copy: bool = False
    skip: int = 1
    hidden: bool = False
    deleted: bool = False
    gone: bool = False
    size: int = 24
    scale: int = 100
    line: int = 0
    colour: int = 0
    behind_letters: int = 0
    behind_paragraph: int = 0
    letters_pattern: int = 0
    letters_shade: int = 0
    paragraph_pattern: int = 0
    paragraph_shade: int = 0
    spacing: int = 0
    high: int = 0
    raised: bool = False
    by_lines: bool = False
    covered: bool = False
    in_table: bool = False
    font: int = -1
    unseen: str | None = None

    def take(self, word: str, number: int | None) -> None:
        """Take a control word that changes the look of text."""
        on = number != 0
        if word == "v":
            self.hidden = on
        elif word in ("deleted", "mvf"):
            self.deleted = on
        elif word in ("super", "sub", "nosupersub"):
            self.raised = on and word != "nosupersub"
        elif word in ("up", "dn") and abs(number or 0) > _FAR:
            self.unseen = "text off the page"
        elif word == "plain":
            self.hidden = self.deleted = self.raised = False
            self.spacing = self.letters_pattern = 0
            self.size, self.scale, self.colour, self.behind_letters, self.font = 24, 100, 0, 0, -1
        elif word == "pard":
            self.behind_paragraph = self.line = self.paragraph_pattern = 0
            self.in_table = self.by_lines = self.covered = False
            self.high = 0
        elif word == "slmult":
            self.by_lines = on
        elif word == "expnd":
            self.spacing = 5 * (number or 0)  # quarters of points
        elif word in ("clvmrg", "clmrg", "trowd"):
            self.covered = word != "trowd"
        elif word == "intbl":
            self.in_table = on
        elif word in _NUMBERS:
            setattr(self, _NUMBERS[word], number or 0)
        elif word in _PLACES and abs(number or 0) > _LONGEST:
            self.unseen = "text off the page"

    def why_unseen(self, colours: list[str], *, shaded: bool) -> str | None:
        """Why a text of this look cannot be seen although it is not hidden, or None.

        Args:
            colours: the table of colours.
            shaded: whether cells of the row have a colour of their own.
        """
        if self.unseen:
            return self.unseen
        if self.size * (_RAISED if self.raised else 1) <= _TINY or self.scale <= _TINY_SCALE:
            return "tiny text"
        if -_TINY_LINE <= self.line < 0 or -_TINY_LINE <= self.high < 0 or 0 < self.line <= self.by_lines * _TINY_LINE:
            return "lines of no height"
        if self.spacing < -max(5 * self.size, _TINY_LINE):  # half of the size, in twips
            return "letters that lie on each other"
        if self.in_table and self.covered:
            return "cells that others cover"
        behind = self.letters_shade if self.letters_pattern >= _SOLID else self.behind_letters
        of_paragraph = self.paragraph_shade if self.paragraph_pattern >= _SOLID else self.behind_paragraph
        behind = behind or of_paragraph
        if behind == 0 and self.in_table and shaded:
            return None
        background = colours[behind] if 0 < behind < len(colours) else "FFFFFF"
        if 0 < self.colour < len(colours) and look_alike(colours[self.colour], background or "FFFFFF"):
            return "text in the colour of what is behind it"
        return None


# distances from where a text would stand otherwise
_PLACES = frozenset((
    "li", "lin", "ri", "rin", "fi", "posx", "posnegx", "posy", "posnegy", "shpleft", "shptop", "tblind", "tposx",
    "tposy",
))  # fmt: skip
_NUMBERS = {
    "fs": "size", "charscalex": "scale", "sl": "line", "cf": "colour", "highlight": "behind_letters",
    "chcbpat": "behind_letters", "cb": "behind_letters", "cbpat": "behind_paragraph", "f": "font", "uc": "skip",
    "chshdng": "letters_pattern", "chcfpat": "letters_shade", "shading": "paragraph_pattern",
    "cfpat": "paragraph_shade", "expndtw": "spacing", "absh": "high",
}  # fmt: skip
