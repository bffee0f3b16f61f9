"""What the control words of RTF mean for the text behind them: whether it is seen, and in which characters it is."""

import codecs
from dataclasses import dataclass

from dgmark_documents.look import Look, has_signs, is_off_page

_TWIPS = 20  # in a point
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
            return SIGNS if has_signs(self.name.strip()) else "cp1252"
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
        line: the height of lines in twips, or 0.
        colour: the number of the colour of letters; the next two say what is behind them.
        in_table: whether it stands in a table.
        font: the number of its font.
        off_page: whether it stands off the page.
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
    in_table: bool = False
    font: int = -1
    off_page: bool = False

    def take(self, word: str, number: int | None) -> None:
        """Take a control word that changes the look of text."""
        on = number != 0
        if word == "v":
            self.hidden = on
        elif word in ("deleted", "mvf"):
            self.deleted = on
        elif word == "plain":
            self.hidden = self.deleted = False
            self.size, self.scale, self.colour, self.behind_letters, self.font = 24, 100, 0, 0, -1
        elif word == "pard":
            self.behind_paragraph = self.line = 0
            self.in_table = False
        elif word == "intbl":
            self.in_table = on
        elif word in _NUMBERS:
            setattr(self, _NUMBERS[word], number or 0)
        elif word in _PLACES:
            self.off_page = self.off_page or is_off_page(((number or 0) / _TWIPS,))

    def look(self, colours: list[str], *, shaded: bool) -> Look:
        """How its text is shown.

        Args:
            colours: the table of colours.
            shaded: whether cells of the row have a colour of their own.
        """
        behind = self.behind_letters or self.behind_paragraph
        known = behind or not (self.in_table and shaded)
        stated = colours[behind] if 0 < behind < len(colours) else ""
        # the height of lines is exact where it is negative, and of at least so much where it is positive
        heights = [self.size / 2 * self.scale / 100, *([-self.line / _TWIPS] if self.line < 0 else [])]
        return Look(
            hidden=self.hidden or self.gone,
            size=min(heights),
            colour=colours[self.colour] if 0 < self.colour < len(colours) else None,
            background=(stated or "ffffff") if known else None,
            off_page=self.off_page,
        )


# distances from where a text would stand otherwise
_PLACES = frozenset((
    "li", "lin", "ri", "rin", "fi", "posx", "posnegx", "posy", "posnegy", "shpleft", "shptop", "tblind", "tposx",
    "tposy",
))  # fmt: skip
_NUMBERS = {
    "fs": "size", "charscalex": "scale", "sl": "line", "cf": "colour", "highlight": "behind_letters",
    "chcbpat": "behind_letters", "cb": "behind_letters", "cbpat": "behind_paragraph", "f": "font", "uc": "skip",
}  # fmt: skip
