"""HTML to text, as a browser shows it: also the chapters of an EPUB, and pages in Word documents and e-mails.

The parser is lxml's, which loads nothing and runs nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode_page
from dgmark_documents.data_urls import data_text, is_page
from dgmark_documents.labels import LABEL_ATTRIBUTES, VALUE_FIELDS, join_labels
from dgmark_documents.markup import ROLES, markup_pieces
from dgmark_documents.page_layout import PageLayout
from dgmark_documents.page_styles import DRAWING, Declared, Look, PageStyles, cuts_off, keyword, length_of, look_of
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.style_sheets import Open, Sheet, parse_sheet, sheet_text
from dgmark_documents.text_builder import TextBuilder

# not text for a reader, wherever it stands
_NEVER = frozenset((
    "head", "style", "template", "noscript", "noframes", "noembed", "desc", "annotation", "annotation-xml", "progress",
    "meter", "rp", "metadata",
))  # fmt: skip
# read behind the page, all of a kind together
_LABELS = {"title": "titles", "select": "choices", "datalist": "choices", "rt": "readings of characters"}
# seen, and not read
# parts of drawings that are shown only where another part names them
_PATTERNS = frozenset(("defs", "symbol", "clippath", "mask", "pattern", "marker", "lineargradient", "radialgradient"))
# what a browser has no box for
_NO_BOX = ("none", "table-column", "table-column-group")
_SIGN = 0.25  # of the square of the size of letters, the room that a letter takes at least
_WIDEST = 1280.0  # pixels: of a part whose width is not known
_MEDIA = frozenset(("iframe", "frame", "object", "embed", "audio", "video", "canvas", "applet", "portal"))
_PICTURES = frozenset(("img", "image"))
_DRAWN = frozenset(("path", "polyline", "polygon", "use", "line", "rect", "circle", "ellipse"))
_LETTERS = 2000  # the paths of all drawings of a page are as long if they draw letters; those of signs are shorter
_LETTER = 200  # of the path of one letter
_SMALL_DATA = 2000  # characters of the address of a picture that holds it, if it is a sign
_MARK = 10  # letters of the longest mark of a note
_PROGRAMS = re.compile("$|module$|.*(java|ecma)script")  # the types of scripts that browsers run
_PROGRAM = re.compile(r"[\s\0-\x1f]*(j\s*a\s*v\s*a|v\s*b)\s*s\s*c\s*r\s*i\s*p\s*t\s*:", re.IGNORECASE)
_REFRESH = re.compile(r"[\s\d.;,]*(?:url\s*=\s*)?[\"']?(.*?)[\"']?\s*", re.IGNORECASE | re.DOTALL)
# the parts of a page around its text
_AROUND = frozenset(("nav", "aside", "menu"))
_ENDS = frozenset(("header", "footer"))
_BODIES = frozenset(("article", "main", "section", "blockquote"))
_PARAGRAPHS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "pre", "blockquote", "table",
))  # fmt: skip
_WORDS = frozenset(("mi", "mn", "mo", "mtext", "ms"))  # MathML's elements that hold text
_HINTED = frozenset(("a", "font", "bdo", "body", *DRAWING))  # whose attributes say how they look
# why the children of a host are not seen beside its shadow root
_REPLACED = "text that a shadow root replaces"
_FAR = 500  # pixels: what is so far out is off the page
_BACKGROUNDS = (
    "background", "background-image", "border-image", "border-image-source", "list-style", "list-style-image",
    "content", "mask", "mask-image",
)  # fmt: skip


def read_html(content: bytes) -> Reading:
    """Read a page of HTML: its text without scripts and hidden parts, then what stands around it.

    Raises:
        Refusal: the page is nested too deeply, or most of it is not read.
    """
    page, how = decode_page(content)
    builder, account = TextBuilder(), Account()
    add_html(builder, page, account)
    account.held += markup_pieces(page)
    return account.reading(builder.text, how=tuple(how))


def add_html(builder: TextBuilder, page: str, account: Account, *, open_file: Open | None = None) -> None:
    """Add the text of a page to `builder`. Paragraphs have an empty line between them, as browsers copy them.

    Args:
        builder: where the text goes.
        page: the page.
        account: counts what is left out, and takes what stands around the text of the page.
        open_file: opens the style sheets beside the page, by their addresses.

    Raises:
        Refusal: the page is nested too deeply.
    """
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, no_network=True)
    root = etree.fromstring(page.encode("utf-8", "replace"), parser) if page.strip() else None
    fatal = [entry for entry in parser.error_log if entry.type_name == "ERR_RESOURCE_LIMIT"]
    if fatal:
        raise Refusal(f"is nested too deeply to be read ({fatal[0].message})")
    roots = []
    while root is not None:  # what stands behind the end of a page has a root of its own
        roots.append(root)
        root = root.getnext()
    _Page(roots, account, open_file).read(builder)


class _Page:
    """Reads one page.

    Args:
        roots: its roots, in order.
        account: counts what is left out.
        open_file: opens the style sheets beside the page.
    """

    def __init__(self, roots: list[Any], account: Account, open_file: Open | None) -> None:
        self._roots = roots
        self._account = account
        self._open = open_file
        self._labels: dict[str, list[str]] = {}
        self._lengths: dict[Any, int] = {}  # the number of letters in each element
        self._looks: dict[tuple[int, int, bool], tuple[Look, Look]] = {}  # with the look around, to keep its identity
        self._drawn = self._drawings = 0
        self._backgrounds: set[str] = set()
        self._rows: dict[str, list[str]] = {"Latin": [], "other": []}  # letters in lines that run from right to left

    def read(self, builder: TextBuilder) -> None:
        sheets = list(self._sheets())
        self._account.add("external style sheets", sum(sheet.missing for sheet in sheets))
        for element in self._elements("title"):
            if element.getparent() is not None and element.getparent().tag == "head":
                self._label("titles", "".join(element.itertext()))
        for root in self._roots:
            if not isinstance(root.tag, str):
                continue
            self._styles = PageStyles(root, sheets)
            self._account.add("rules of style sheets", self._styles.unknown)
            self._layout = PageLayout(root, self._styles)
            self._walk(root, builder, Look())
        for element in self._elements("meta"):
            if element.get("http-equiv", "").lower() == "refresh":
                self._refresh(element.get("content") or "")
        if self._drawn > _LETTERS:
            self._account.add("drawings", self._drawings, weight=self._drawn / _LETTER)
        for place, labels in self._labels.items():
            self._account.add_beside(place, join_labels(labels))
        if len(self._rows["Latin"]) > len(self._rows["other"]):
            self._account.add_not_shown("text in another order", "".join(self._rows["Latin"]))

    def _elements(self, *names: str) -> Iterable[Any]:
        return (element for root in self._roots for element in root.iter(*names))

    def _sheets(self) -> Iterable[Sheet]:
        """The style sheets of the page, in order."""
        for element in self._elements("style", "link"):
            media = element.get("media") or ""
            text: str | None = "".join(element.itertext())
            if element.tag == "link":
                relations = (element.get("rel") or "").lower().split()
                if "stylesheet" not in relations or "alternate" in relations:
                    continue
                text = sheet_text(element.get("href") or "", self._open)
            yield Sheet(missing=1) if text is None else parse_sheet(text, media, self._open)

    def _refresh(self, content: str) -> None:
        """Read the page that opens by itself instead of this one, or note that there is one."""
        found = _REFRESH.fullmatch(content)
        address = found[1] if found else ""
        if address and not self._add_data(address, None):
            self._account.add("jumps to other pages", weight=Account.UNKNOWN)

    def _add_data(self, address: str | None, builder: TextBuilder | None) -> bool:
        """Read what a `data:` address holds, if that is a text; without `builder` beside the page."""
        data = data_text(address)
        if data is None:
            return False
        kind, text = data
        into = TextBuilder() if builder is None else builder
        if is_page(kind):
            add_html(into, text, self._account, open_file=self._open)
        else:
            into.add(text, exact=True)
        if builder is None:
            self._account.add_beside("pages that open by themselves", into.text)
        return True

    def _label(self, place: str, text: str | None) -> None:
        if text:
            self._labels.setdefault(place, []).append(text)

    def _add_beside(self, element: Any, look: Look, place: str) -> None:
        """Read a part of the page that stands apart from its text behind it."""
        builder = TextBuilder()
        self._walk(element, builder, look, beside=True)
        self._account.add_beside(place, builder.text)

    def _walk(self, top: Any, builder: TextBuilder, look: Look, *, beside: bool = False) -> None:
        from lxml import etree

        events = etree.iterwalk(top, events=("start", "end", "comment", "pi"))
        skipped = None
        looks = [look]
        for event, element in events:
            if event == "start":
                declared = self._styles.of(element)
                above = looks[-1]
                if _is_shadow_root(element) and len(looks) > 1:  # it stands in place of the rest of its host
                    above = replace(above, reasons=above.reasons - ({_REPLACED} - looks[-2].reasons))
                own = self._look(element, declared, above)
                if self._leave_out(element, declared, own, builder, whole=beside and element is top):
                    events.skip_subtree()
                    skipped = element
                    continue
                looks.append(own)
                self._begin(element, builder, own)
                continue
            if event == "end" and element is not skipped:
                self._end(element, builder, looks.pop())
            if event == "end":
                skipped = None
            if element is not top:
                self._add(builder, element.tail, looks[-1])

    def _look(self, element: Any, declared: Declared, above: Look) -> Look:
        hints = element.attrib
        if element.tag in _HINTED or "dir" in hints or "bgcolor" in hints:
            look = look_of(element, declared, above)
        elif declared or element.tag in ("pre", "listing"):
            key = (id(declared), id(above), element.tag in ("pre", "listing"))
            if key not in self._looks:
                self._looks[key] = look_of(element, declared, above), above
            look = self._looks[key][0]
        else:
            look = above
        reason = self._why_unseen(element, declared, look)
        return look.because(reason) if reason else look

    def _why_unseen(self, element: Any, declared: Declared, look: Look) -> str | None:
        """Why the place of an element keeps its text from being seen."""
        if element in self._layout.misplaced:
            return "text in another order"
        if element.tag in _PATTERNS:
            return "parts of drawings that others show"
        if element.tag in DRAWING and _is_far(element):
            return "text off the page"
        if len(element) and _is_shadow_root(element[0]):
            return None if any(True for _ in element[0].iter("slot")) else _REPLACED
        if declared and cuts_off(declared, look) and self._overflows(element, declared, look):
            return "text that is cut off"
        return None

    def _overflows(self, element: Any, declared: Declared, look: Look) -> bool:
        """Whether a box of a fixed height has no room for most of its text."""
        heights = [length_of(declared, name, look) for name in ("height", "max-height")]
        widths = [length_of(declared, name, look) for name in ("width", "max-width")]
        height = next((one for one in heights if one is not None), None)
        if height is None:
            return False
        width = next((one for one in widths if one is not None), _WIDEST)
        if not self._lengths:
            self._lengths = _lengths_of(self._roots)
        return height * width < _SIGN * look.size**2 * self._lengths[element] / 2

    def _add(self, builder: TextBuilder, text: str | None, look: Look) -> None:
        if not text or not look.visible:
            return
        builder.add(text, exact=look.exact)
        reason = look.unseen
        if reason:
            self._account.add_not_shown(reason, text)
        if look.right_to_left:
            letters = [one for one in text if one.isalpha()]
            self._rows["Latin"] += [one for one in letters if one < "\u0590"]
            self._rows["other"] += [one for one in letters if one >= "\u0590"]

    def _begin(self, element: Any, builder: TextBuilder, look: Look) -> None:
        tag = element.tag
        if tag == "mspace" and not self._layout.is_block(element):
            builder.add(" ")
        else:
            self._separate(element, builder)
        if tag == "br":
            builder.end_line()
        if tag == "li" and any(map(str.isalpha, look.marker)):
            self._add(builder, look.marker, look)
        self._generated(element, "before", builder, look)
        self._add(builder, element.text, look)

    def _end(self, element: Any, builder: TextBuilder, look: Look) -> None:
        self._generated(element, "after", builder, look)
        self._separate(element, builder)

    def _separate(self, element: Any, builder: TextBuilder) -> None:
        """Put what stands between an element and its neighbours."""
        if self._layout.is_block(element):
            builder.block(2 if element.tag in _PARAGRAPHS else 1)
        elif self._layout.is_cell(element) or _is_word(element):
            builder.add(" ")
        elif self._layout.has_room(element):
            builder.room()

    def _generated(self, element: Any, where: str, builder: TextBuilder, look: Look) -> None:
        """Read the text that styles put before or after what an element holds."""
        text, declared = self._styles.beside(element, where, look)
        if not declared:
            return
        self._add_backgrounds(declared)
        text = "".join(one for one in text if one.isascii() or one.isalnum() or one.isspace())  # no signs
        if text:
            block = keyword(declared, "display", look) == "block"
            if block:
                builder.block()
            self._add(builder, text, look_of(element, declared, look))
            if block:
                builder.block()

    def _leave_out(self, element: Any, declared: Declared, look: Look, builder: TextBuilder, *, whole: bool) -> bool:
        """Whether an element is not read at its place; what is seen of it is counted, or read elsewhere."""
        tag = element.tag
        if not whole and _is_hidden(element, declared, look):
            if "shown-on-demand" in declared:
                self._add_beside(element, look, "parts shown on demand")
            return True
        if not whole and tag == "details" and "open" not in element.attrib:
            self._add_beside(element, look, "closed details")
            return True
        if not whole and _is_around(element):
            self._add_beside(element, look, element.get("role") or element.tag)
            return True
        self._count_attributes(element)
        self._add_backgrounds(declared)
        if tag in _LABELS:
            options = list(element.iter("option")) if tag in ("select", "datalist") else [element]
            for one in options:
                self._label(_LABELS[tag], one.get("label") or "".join(one.itertext()))
            for one in element.iter("option", "optgroup"):
                self._count_attributes(one)
            return True
        shown = "display" in declared and tag in (*_NEVER, "script")
        if shown:
            self._account.add_beside("parts that styles show", "".join(element.itertext()))
        if (tag in _NEVER and not element.get("shadowrootmode")) or (shown and tag == "script"):
            return True
        return self._leave_out_part(element, declared, look, builder)

    def _leave_out_part(self, element: Any, declared: Declared, look: Look, builder: TextBuilder) -> bool:
        tag = element.tag
        if tag == "script":
            self._account.add("scripts", int(bool(_PROGRAMS.match(element.get("type", "").lower()))))
        elif tag == "iframe" and element.get("srcdoc"):
            add_html(builder, element.get("srcdoc"), self._account, open_file=self._open)
        elif tag in _MEDIA:
            if not self._add_data(element.get("data" if tag == "object" else "src"), builder):
                self._account.add("embedded objects", weight=Account.UNKNOWN)
        elif tag in _PICTURES or (tag == "input" and _kind(element) == "image"):
            self._add_data(element.get("src") or element.get("href") or element.get("xlink:href"), builder)
            self._account.add_picture(*_size(element, declared, look))
        elif tag == "input":
            if _kind(element) not in VALUE_FIELDS:
                self._add(builder, element.get("value"), look)
        else:
            if tag in _DRAWN:
                self._drawn += max(20, len(element.get("d", "")), len(element.get("points", "")), 100 * (tag == "use"))
            self._drawings += tag == "svg"
            return _is_reference(element)
        return True

    def _count_attributes(self, element: Any) -> None:
        """Read the attributes of an element that are seen, and count those that run as scripts."""
        for name, value in element.items():
            if name in LABEL_ATTRIBUTES:
                self._label(LABEL_ATTRIBUTES[name], value)
            elif (name.startswith("on") and value.strip()) or _PROGRAM.match(value):
                self._account.add("scripts")
            elif name == "background" and value:
                self._add_background(value)

    def _add_backgrounds(self, declared: Declared) -> None:
        for name in _BACKGROUNDS:
            for token in declared.get(name, ()):
                if token.type == "url":
                    self._add_background(token.value)
                elif token.type == "function" and token.lower_name in ("url", "image-set", "-webkit-image-set", "src"):
                    self._add_background("".join(str(getattr(one, "value", "")) for one in token.arguments))

    def _add_background(self, address: str) -> None:
        """Count a picture behind the text, once however often it is shown."""
        sign = address.lower().startswith("data:") and len(address) < _SMALL_DATA
        if not sign and address not in self._backgrounds:
            self._backgrounds.add(address)
            self._account.add("pictures", weight=Account.UNKNOWN)


def _lengths_of(roots: list[Any]) -> dict[Any, int]:
    """The number of letters in each element."""
    lengths: dict[Any, int] = {}
    elements = [one for root in roots for one in root.iter() if isinstance(one.tag, str)]
    for element in reversed(elements):
        inner = sum(lengths.get(one, 0) + len((one.tail or "").strip()) for one in element)
        lengths[element] = len((element.text or "").strip()) + inner
    return lengths


def _is_shadow_root(element: Any) -> bool:
    return element.tag == "template" and bool(element.get("shadowrootmode"))


def _is_far(element: Any) -> bool:
    """Whether a part of a drawing says that it stands off the page."""
    for name in ("x", "y", "dx", "dy"):
        try:
            place = float((element.get(name) or "0").split()[0].removesuffix("px"))
        except (ValueError, IndexError):
            continue
        if not -_FAR < place < 10 * _FAR:
            return True
    return False


def _kind(element: Any) -> str:
    return str(element.get("type") or "text").lower()


def _size(element: Any, declared: Declared, look: Look) -> tuple[float | None, float | None]:
    """Width and height of a picture in points, if the page says a side of it in pixels and no style says otherwise."""
    if any(name in declared for name in ("min-width", "min-height", "transform", "scale", "zoom")):
        return None, None
    sides = []
    for side in ("width", "height"):
        if side in declared and keyword(declared, side, look) != "auto":
            sides.append(length_of(declared, side, look))
        else:
            stated = element.get(side, "").removesuffix("px")
            if stated.isdecimal():
                sides.append(float(stated))
    points = [None if side is None else side * 0.75 for side in sides]
    return (points[0], points[-1]) if points else (None, None)


def _is_around(element: Any) -> bool:
    """Whether an element stands around the text of the page."""
    if element.tag in _AROUND or element.get("role") in ROLES:
        return True
    return element.tag in _ENDS and not any(parent.tag in _BODIES for parent in element.iterancestors())


def _is_hidden(element: Any, declared: Declared, look: Look) -> bool:
    display = keyword(declared, "display", look) if declared else None
    if display in _NO_BOX or (declared and keyword(declared, "content-visibility", look) == "hidden"):
        return True
    closed = "popover" in element.attrib or (element.tag == "dialog" and "open" not in element.attrib)
    return (closed or "hidden" in element.attrib) and display in (None, "revert", "revert-layer")


def _is_word(element: Any) -> bool:
    """Whether an element of a formula or a drawing is a word that stands apart from its neighbours."""
    apart = element.tag in _WORDS or (element.tag == "tspan" and ("x" in element.attrib or "dx" in element.attrib))
    return apart and sum(map(str.isalpha, "".join(element.itertext()))) > 1


def _is_reference(element: Any) -> bool:
    """Whether an element is the mark of a note: a raised link within the document, or a note's link back."""
    if element.tag == "sup":
        return _covers(element, [one for one in element.iter("a") if "#" in (one.get("href") or "")])
    if element.tag != "a" or "#" not in (element.get("href") or ""):
        return False
    return _covers(element, element.iter("sup"))


def _covers(element: Any, parts: Iterable[Any]) -> bool:
    """Whether all of the element's text stands in these parts of it."""
    text = "".join(element.itertext()).strip()
    return 0 < len(text) <= _MARK and text == "".join("".join(part.itertext()) for part in parts).strip()
