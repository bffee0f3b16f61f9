"""All texts of markup, taken in the plainest way: by them, the account of a document sees what its reading lacks.

Knows no reader: markup is taken apart by Python's `html.parser`, and each text counts, whatever its element, and each
attribute that is no technical one.
"""

import re
from collections import Counter
from html.parser import HTMLParser

from dgmark_documents.account import Piece
from dgmark_documents.data_urls import data_text, is_page
from dgmark_documents.labels import LABEL_ATTRIBUTES, join_labels
from dgmark_documents.style_sheets import parse_declarations, parse_sheet, shown_attributes, shown_strings

_NO_ELEMENTS = frozenset(("script", "style"))
# the attributes of HTML, SVG and MathML that hold names, addresses, numbers and settings
_NAMES = """
    abbr accept accept-charset accesskey action align allow archive async autocapitalize autocomplete autofocus axis
    background bgcolor border cellpadding cellspacing char charset cite class classid clear code codebase codetype
    color cols colspan compact content-type contenteditable controls coords crossorigin d data datetime decoding
    defer dir dirname dominant-baseline download draggable encoding enctype enterkeyhint face fill fill-rule
    fetchpriority font-family font-size font-style font-weight for form formaction formenctype formmethod formtarget
    frame frameborder gradienttransform gradientunits headers height hidden href hreflang hspace http-equiv id
    imagesizes imagesrcset inert inputmode instr integrity is ismap itemid itemprop itemref itemscope itemtype lang
    language link list loading longdesc marginheight marginwidth max maxlength media method min minlength multiple
    muted name nohref nonce noresize noshade novalidate nowrap object pattern ping points poster prefix
    preserveaspectratio profile property readonly referrerpolicy rel required resource rev role rowspan rows rules
    sandbox scheme scope scrolling shape size sizes slot span spellcheck src srclang srcset start step stroke
    stroke-linecap stroke-linejoin stroke-width style tabindex target text-anchor transform translate type typeof
    usemap valign valuetype vertical-align viewbox vlink vocab vspace width wrap x xmlns y
"""
_TECHNICAL = frozenset(_NAMES.split())
_NEVER_SHOWN = frozenset(("meta", "link", "script", "style", "base", "html", "head", "param", "source"))
_SENT = frozenset(("option", "button", "li", "data", "meter", "progress"))  # whose value is no text on the page
_TECHNICAL_PREFIXES = ("xmlns", "on", "aria-labelledby", "aria-describedby", "aria-controls", "aria-owns")
# of a page's parts, those that no program shows at first, and whose labels count only if there are many
_HIDDEN_PARTS = frozenset(("dialog", "template", "noscript", "noframes", "noembed", "metadata"))
LABELS, HIDDEN, ATTRIBUTES = "labels", "hidden parts", "attributes"
ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search"))
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*(hidden|collapse)")
_VOID = frozenset(("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"))
_PROSE = re.compile(r"(?:[^\W\d_]{2,}[^\w\s]*\s+){5}")
_WORD = re.compile(r"(?<![^\s(\"'“‘«])[^\W\d_]{2,}(?![^\s.,;:!?)\"'”’»])")  # one that stands by itself
_ADDRESS = re.compile(r"\s*\S*[./#?=:@]\S*\s*")
_DATA = ("{", "[", "<")  # what begins with it is data or markup
_ENTITY = re.compile(r"ENTITY\s+(?:%\s+)?\S+\s+(?:\"([^\"]*)\"?|'([^']*)'?)")


def markup_pieces(
    source: str, part: str = "", *, page: bool = True, shown: frozenset[str] = frozenset()
) -> list[Piece]:
    """The texts and attributes of XML or HTML, in order.

    Args:
        source: the markup.
        part: what stands before the names of elements.
        page: whether it is HTML or a drawing; of other XML only the attributes that are prose count.
        shown: the attributes that style sheets elsewhere show.
    """
    parser = _Markup(part, page)
    parser.feed(source)
    parser.close()
    return parser.pieces(shown)


def style_pieces(text: str, part: str = "") -> list[Piece]:
    """The strings of a style sheet that a page can show."""
    return [Piece(f"{part}style sheet", one) for one in parse_sheet(text).shown]


class _Markup(HTMLParser):
    """Collects the texts of markup. It builds no tree, so that nothing is lost for being in a wrong place."""

    def __init__(self, part: str, page: bool) -> None:
        super().__init__()
        self._part = part
        self._page = page
        self._pieces: list[tuple[Piece, str | None]] = []  # each with the name of its attribute
        self._shown: set[str] = set()  # the attributes that styles show
        self._open: list[tuple[str, bool, str | None]] = []  # name, whether it is not counted, and its group
        self._names: Counter[str] = Counter()  # of the open elements
        self._style: list[str] | None = None

    def pieces(self, shown: frozenset[str]) -> list[Piece]:
        """What was collected: attributes that styles show count each time, others once for each value."""
        self._end_style()
        found: list[Piece] = []
        values: set[str] = set()
        labels: dict[str, list[str]] = {}
        styled = self._shown | shown
        for piece, attribute in self._pieces:
            if attribute is None:
                found.append(piece)
            elif attribute.removeprefix("attribute ") in styled:
                if not _ADDRESS.fullmatch(piece.text):
                    found.append(piece._replace(group=None))
            elif piece.group == LABELS:
                labels.setdefault(attribute, []).append(piece.text)
            elif piece.group is not None and not (piece.group == ATTRIBUTES and piece.text in values):
                values.add(piece.text)
                found.append(piece)
        return found + [Piece(f"{self._part}{name}", join_labels(texts), LABELS) for name, texts in labels.items()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        _, skipped, group = self._open[-1] if self._open else ("", False, None)
        if (
            "hidden" in values
            or "popover" in values
            or _HIDING.search((values.get("style") or "").lower())
            or tag in _HIDDEN_PARTS
        ):
            group = HIDDEN
        skipped = skipped or tag in _NO_ELEMENTS
        self._end_style()
        if tag == "style":
            self._style = []
        for attribute, value in attrs:
            if value and not skipped:
                self._attribute(tag, attribute, value)
        if tag not in _VOID:
            self._open.append((tag, skipped, group))
            self._names[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._end_style()
        while self._names[tag]:
            name, _, _ = self._open.pop()
            self._names[name] -= 1
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        tag, skipped, group = self._open[-1] if self._open else ("", False, None)
        if tag == "style" and self._style is not None:
            self._style.append(data)
        elif not skipped and data.strip():
            place = f"{self._part}element {tag or 'none'}"
            if tag == "title":
                self._pieces.append((Piece(place, data, LABELS), "element title"))
            else:
                self._pieces.append((Piece(place, data, LABELS if tag == "option" else group), None))

    def unknown_decl(self, data: str) -> None:
        self.handle_data(data.removeprefix("CDATA["))

    def handle_decl(self, decl: str) -> None:
        self.handle_comment(decl.partition("[")[2])

    def handle_comment(self, data: str) -> None:
        """Count the texts of entities: the parser takes their declarations for comments."""
        for one in _ENTITY.findall(data):
            self._pieces.append((Piece(f"{self._part}entity", "".join(one)), None))

    def _attribute(self, tag: str, attribute: str, value: str) -> None:
        place = f"{self._part}attribute {attribute} of {tag}"
        name = attribute.rpartition(":")[2]
        data = data_text(value) if self._page else None
        if attribute == "srcdoc":
            self._add(markup_pieces(value, self._part))
        elif data is not None:
            kind, text = data
            if is_page(kind):
                self._add(markup_pieces(text, self._part))
            else:
                self._add(style_pieces(text, self._part) if "css" in kind else [Piece(place, text)])
        elif attribute == "style" and self._page:
            declarations = parse_declarations(value)
            self._shown |= shown_attributes(declarations)
            self._add([Piece(place, one) for one in shown_strings(declarations)])
        elif not self._page:
            if _PROSE.match(value):
                self._add([Piece(place, value)])
        else:
            self._pieces.append((Piece(place, value, _group(tag, name, value)), f"attribute {attribute}"))

    def _add(self, pieces: list[Piece]) -> None:
        self._pieces += [(piece, None) for piece in pieces]

    def _end_style(self) -> None:
        if self._style is not None and self._page:
            sheet = parse_sheet("".join(self._style))
            self._shown |= sheet.attributes
            self._add([Piece(f"{self._part}element style", one) for one in sheet.shown])
        self._style = None


def _group(tag: str, name: str, value: str) -> str | None:
    """The group of an attribute; None if it counts only where a style shows it."""
    if tag in _NEVER_SHOWN or (name == "value" and tag in _SENT):
        return None
    if name in LABEL_ATTRIBUTES or (name == "value" and tag == "input"):
        return LABELS
    if name in _TECHNICAL or name.startswith(_TECHNICAL_PREFIXES) or value.lstrip().startswith(_DATA):
        return None
    return ATTRIBUTES if _WORD.search(value) else None
