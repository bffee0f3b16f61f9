"""What a reading lacks: the letters that a file holds, taken in the plainest way, against those that were read.

Knows no reader: markup is taken apart by Python's `html.parser`, and each text and each attribute that is prose counts,
whatever its element.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from itertools import accumulate
from typing import NamedTuple

# the deliberate exceptions, which are not counted: elements by their local names, attributes, and parts of packed files
_NO_ELEMENTS = frozenset((
    "script", "style", "deltext", "delinstrtext", "movefrom", "tracked-changes", "instrtext", "binary-data",
))  # fmt: skip
_NO_ATTRIBUTES = frozenset(("style", "class", "instr"))
NO_PARTS = ("META-INF/", "docProps/", "customXml/", "word/glossary/", "meta.xml", "settings.xml", ".opf", ".ncx")
# parts of a page of which a text counts only if it is prose: the labels in them are no part of the page's own text
_LABELLED = frozenset((
    "nav", "aside", "menu", "header", "footer", "title", "select", "datalist", "dialog", "template", "noscript",
))  # fmt: skip
ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search"))
_LABEL = 100  # letters of the longest label
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*(hidden|collapse)")
_VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"))
_PROSE = re.compile(r"(?:[^\W\d_]{2,}[^\w\s]*\s+){5}")
_GENERATED = re.compile(r"""content\s*:\s*["']([^"']+)""")  # text that a style puts onto the page
_BUTTON = "MACROBUTTON"  # the field whose code is shown
_DATA = re.compile(r"[a-z]+://\S+|[!-~]{60,}")  # addresses and encoded data
# letters that must agree to count as read, and of the blocks by which such places are found
_AGREE, _BLOCK = 16, 8


class Piece(NamedTuple):
    """A text of a file, the place where it stands, and whether it is a label if it is short."""

    place: str
    text: str
    labelled: bool = False


class Lacking(NamedTuple):
    """What a reading lacks.

    Attributes:
        places: number of letters that were not read, by place.
        longest: the most of them in one run.
        share: their share of all letters.
    """

    places: Counter[str]
    longest: int
    share: float


def lacking(text: str, pieces: Iterable[Piece], *, ascii_only: bool = False) -> Lacking:
    """Find the letters of a file that its reading does not have; runs of fewer than 16 letters do not count.

    Args:
        text: the text that was read, in any order.
        pieces: all that the file holds, in its order.
        ascii_only: compare only the letters of ASCII, where those of other alphabets are encoded by fonts.
    """
    counted = [(piece, _letters(_DATA.sub(" ", piece.text), ascii_only)) for piece in pieces]
    ends = list(accumulate(len(letters) for _, letters in counted))
    places: Counter[str] = Counter()
    longest = 0
    read = _letters(text, ascii_only)
    for start, end in _gaps("".join(letters for _, letters in counted), read):
        run, at = 0, bisect_right(ends, start)
        while start < end:
            stop = min(end, ends[at])
            piece, letters = counted[at]
            if not piece.labelled or len(letters) > _LABEL:
                places[piece.place] += stop - start
                run += stop - start
            start, at = stop, at + 1
        longest = max(longest, run)
    return Lacking(places, longest, places.total() / max(1, places.total() + len(read)))


def _letters(text: str, ascii_only: bool) -> str:
    return "".join(one for one in text if one.isalpha() and (one.isascii() or not ascii_only))


def _gaps(held: str, read: str) -> Iterator[tuple[int, int]]:
    """The runs [start, end) of what is held that stand nowhere in what was read."""
    blocks: dict[str, int] = {}
    for place in range(0, len(read) - _BLOCK + 1, _BLOCK):
        blocks.setdefault(read[place : place + _BLOCK], place)
    at = end = 0
    while at + _BLOCK <= len(held):
        place = blocks.get(held[at : at + _BLOCK], -1)
        start, stop = _agreement(held, read, at, place, end) if place >= 0 else (at, at)
        if stop - start < _AGREE:
            at += 1
            continue
        if start - end >= _AGREE:
            yield end, start
        at = end = stop
    if len(held) - end >= _AGREE:
        yield end, len(held)


def _agreement(held: str, read: str, at: int, place: int, lowest: int) -> tuple[int, int]:
    """How far what is held agrees around `at` with what was read around `place`: [start, end) of `held`."""
    start, before = at, place
    while start > lowest and before and held[start - 1] == read[before - 1]:
        start, before = start - 1, before - 1
    end, after = at + _BLOCK, place + _BLOCK
    while end < len(held) and after < len(read) and held[end] == read[after]:
        end, after = end + 1, after + 1
    return start, end


def markup_pieces(source: str, part: str = "") -> list[Piece]:
    """The texts and prose attributes of XML or HTML, in order; `part` stands before the names of elements."""
    parser = _Markup(part)
    parser.feed(source)
    parser.close()
    return parser.pieces


class _Markup(HTMLParser):
    """Collects the texts of markup. It builds no tree, so that nothing is lost for being in a wrong place."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self.pieces: list[Piece] = []
        self._part = part
        self._open: list[tuple[str, bool, bool]] = []  # name, whether it is not counted, and whether labels stand in it

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name = tag.rpartition(":")[2]
        _, skipped, labelled = self._open[-1] if self._open else ("", False, False)
        hides = "hidden" in values or bool(_HIDING.search((values.get("style") or "").lower()))
        labelled = labelled or hides or tag in _LABELLED or values.get("role") in ROLES
        skipped = skipped or name in _NO_ELEMENTS
        for attribute, value in attrs:
            if attribute == "srcdoc":
                self.pieces += markup_pieces(value or "", self._part)
            known = attribute.rpartition(":")[2] in _NO_ATTRIBUTES
            if value and not skipped and not known and _PROSE.match(value):
                self.pieces.append(Piece(f"{self._part}attribute {attribute} of {tag}", value, labelled))
        if tag not in _VOID:
            self._open.append((tag, skipped, labelled))

    def handle_endtag(self, tag: str) -> None:
        if any(tag == name for name, _, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        tag, skipped, labelled = self._open[-1] if self._open else ("", False, False)
        if tag == "style":
            data = " ".join(_GENERATED.findall(data))
        elif skipped and _BUTTON not in data:
            return
        if data.strip():
            self.pieces.append(Piece(f"{self._part}element {tag or 'none'}", data, labelled))

    def unknown_decl(self, data: str) -> None:
        self.handle_data(data.removeprefix("CDATA["))
