"""All texts of markup, taken in the plainest way: by them, the account of a document sees what its reading lacks.

Knows no reader: markup is taken apart by Python's `html.parser`, and each text and each attribute that is prose counts,
whatever its element.
"""

import re
from html.parser import HTMLParser

from dgmark.documents.account import Piece

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
LABELS = "labels"
ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search"))
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*(hidden|collapse)")
_VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"))
_PROSE = re.compile(r"(?:[^\W\d_]{2,}[^\w\s]*\s+){5}")
_GENERATED = re.compile(r"""content\s*:\s*["']([^"']+)""")  # text that a style puts onto the page
_BUTTON = "MACROBUTTON"  # the field whose code is shown


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
        self._open: list[tuple[str, bool, str | None]] = []  # name, whether it is not counted, and its group

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        name = tag.rpartition(":")[2]
        _, skipped, group = self._open[-1] if self._open else ("", False, None)
        hides = "hidden" in values or bool(_HIDING.search((values.get("style") or "").lower()))
        if hides or tag in _LABELLED or values.get("role") in ROLES:
            group = LABELS
        skipped = skipped or name in _NO_ELEMENTS
        for attribute, value in attrs:
            if attribute == "srcdoc":
                self.pieces += markup_pieces(value or "", self._part)
            known = attribute.rpartition(":")[2] in _NO_ATTRIBUTES
            if value and not skipped and not known and _PROSE.match(value):
                self.pieces.append(Piece(f"{self._part}attribute {attribute} of {tag}", value, group))
        if tag not in _VOID:
            self._open.append((tag, skipped, group))

    def handle_endtag(self, tag: str) -> None:
        if any(tag == name for name, _, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        tag, skipped, group = self._open[-1] if self._open else ("", False, None)
        if tag == "style":
            data = " ".join(_GENERATED.findall(data))
        elif skipped and _BUTTON not in data:
            return
        if data.strip():
            self.pieces.append(Piece(f"{self._part}element {tag or 'none'}", data, group))

    def unknown_decl(self, data: str) -> None:
        self.handle_data(data.removeprefix("CDATA["))
