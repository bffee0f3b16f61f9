"""HTML to text, in the order of the page: also the chapters of an EPUB, and pages in Word documents and e-mails.

The parser is lxml's, which loads nothing and runs nothing.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from lxml import etree

from dgmark_documents.account import Account, Piece
from dgmark_documents.charsets import decode_page
from dgmark_documents.look import Look, put
from dgmark_documents.page_styles import Declared, Open, Styles, colour_of, declared, is_cut_off, length, look_of, word
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.walk import Walk
from dgmark_documents.xml_pieces import declares_texts, xml_pieces

# the attributes that a page shows, and what is said of them
_LABEL_ATTRIBUTES = {
    "title": "tool tips", "alt": "texts of pictures", "placeholder": "placeholders", "label": "labels",
}  # fmt: skip
# the kinds of `input` that do not show their value
_VALUE_FIELDS = frozenset(("hidden", "password", "checkbox", "radio", "file", "color", "range", "image"))
# no text of the page
_NEVER = frozenset(("head", "style", "template", "progress", "meter", "rp"))
# what a browser shows only where it cannot show something else, or never
_INSTEAD = frozenset((
    "noscript", "noframes", "noembed", "desc", "annotation", "annotation-xml", "metadata",
    "defs", "symbol", "clippath", "mask", "pattern", "marker", "lineargradient", "radialgradient",
))  # fmt: skip
# read behind the page, all of a kind together
_LABELS = {"title": "titles", "select": "choices", "datalist": "choices", "rt": "readings of characters"}
_MEDIA = frozenset(("iframe", "frame", "object", "embed", "audio", "video", "canvas", "applet", "portal"))
_PICTURES = frozenset(("img", "image"))
_DRAWN = frozenset(("path", "polyline", "polygon", "use", "line", "rect", "circle", "ellipse"))
_LETTERS = 2000  # the paths of all drawings of a page are as long if they draw letters; those of signs are shorter
_LETTER = 200  # of the path of one letter
_MARK = re.compile(r"\s*[\[(]?(?:\d{1,4}|[*†‡§])[\])]?\s*")  # of a note, or of the way back from it
_WORD = 16  # letters of a word, about
_SMALL_DATA = 2000  # characters of the address of a picture that holds it, if it is a sign
_PROGRAMS = re.compile("$|module$|.*(java|ecma)script")  # the types of scripts that browsers run
_PROGRAM = re.compile(r"[\s\0-\x1f]*(j\s*a\s*v\s*a|v\s*b)\s*s\s*c\s*r\s*i\s*p\s*t\s*:", re.IGNORECASE)
# the parts of a page around its text
_AROUND = frozenset(("nav", "aside", "menu"))
_ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search"))
_ENDS = frozenset(("header", "footer"))
_BODIES = frozenset(("article", "main", "section", "blockquote"))
_PARAGRAPHS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "pre", "blockquote", "table",
))  # fmt: skip
_BLOCKS = _PARAGRAPHS | frozenset((
    "address", "article", "body", "caption", "center", "dd", "details", "div", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "header", "hr", "html", "li", "main", "section", "summary", "tbody", "tfoot", "thead",
    "tr", "nav", "aside", "menu", "search", "dialog", "legend", "listing", "xmp", "plaintext", "hgroup", "optgroup",
))  # fmt: skip
# what stands beside its neighbours with room between
_CELLS = frozenset(("td", "th", "text", "mtd", "mtext", "option", "mspace"))
_ROWS = frozenset(("flex", "inline-flex", "grid", "inline-grid", "-webkit-flex", "-webkit-box", "-ms-flexbox"))
_LINES = frozenset(("block", "list-item", "table", "table-row", "table-caption", "flow-root", "flex", "grid"))
_DRAWING = frozenset(("svg", "g", "text", "tspan", "textpath"))
_HINTS = ("display", "visibility", "opacity", "font-size", "clip-path", "mask")
_DATA = "[CDATA["  # how a comment begins that is a text in drawings and in XHTML
_LINK = "0000ee"
_GROUPS = {"template": "hidden parts", **dict.fromkeys(("title", "option"), "labels")}
# attributes of prose that no browser shows
_TECHNICAL = re.compile(
    r"class|style|rel|headers|sizes|srcset|accept|allow|sandbox|autocomplete|item(prop|type|scope)|property|typeof|on.+"
    r"|xmlns.*|aria-(labelledby|describedby|controls|owns)|d|points|href|src|srcdoc|" + "|".join(_LABEL_ATTRIBUTES)
)
_OPENED, _CLOSED = (re.compile(f"<{end}(html|body)\\b", re.IGNORECASE) for end in ("", "/"))
_UNSEEN = ("meta", "link", "script", "style", "base", "html", "head", "param", "source", "option", "button", "data")


def read_html(content: bytes) -> Reading:
    """Read a page of HTML: its text, then what stands around it and what it hides."""
    page, how = decode_page(content)
    if _OPENED.search(page) and not _CLOSED.search(page):
        how = [*how, "its end tags are missing, as where a file is cut off"]
    builder, account = TextBuilder(), Account()
    add_html(builder, page, account)
    account.held += page_pieces(page)
    return account.reading(builder.text, how=tuple(how))


def page_pieces(page: str, part: str = "") -> Iterable[Piece]:
    """All texts of a page but for scripts and styles, and attributes that read like prose."""
    for root in _roots(page):
        if isinstance(root.tag, str):
            yield from xml_pieces(
                root, part, passed=("script", "style"), groups=_GROUPS, technical=_TECHNICAL, bare=_UNSEEN
            )
            for frame in root.iter("iframe"):
                yield from page_pieces(frame.get("srcdoc", ""), part)


def is_page(kind: str) -> bool:
    """Whether a media type is that of a page or a drawing."""
    return any(one in kind for one in ("html", "svg", "xml"))


def add_html(builder: TextBuilder, page: str, account: Account, *, open_file: Open | None = None) -> None:
    """Add the text of a page to `builder`. Paragraphs have an empty line between them, as browsers copy them.

    The account takes what stands around the text of the page, and `open_file` opens the style sheets beside the page.
    """
    roots = _roots(page)
    if declares_texts(page):
        account.add_unknown("texts declared as entities")
    styles = _styles_of(roots, open_file)
    if styles.rules:
        elements = sum(1 for root in roots for _ in root.iter())
        roots = _roots(styles.inlined(page, elements))
    account.add("external style sheets", styles.missing)
    account.add("texts of style sheets", styles.unknown)
    account.add_beside("texts of style sheets", join_labels([*styles.texts]))
    _Page(builder, account, open_file).read(roots)


def _roots(page: str) -> list[Any]:
    """The roots of a page: what stands behind its end has one of its own."""
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, no_network=True)
    root = etree.fromstring(page.encode("utf-8", "replace"), parser) if page.strip() else None
    fatal = [entry for entry in parser.error_log if entry.type_name == "ERR_RESOURCE_LIMIT"]
    if fatal:
        raise Refusal(f"is nested too deeply to be read ({fatal[0].message})")
    return [] if root is None else [root, *root.itersiblings()]


def _styles_of(roots: list[Any], open_file: Open | None) -> Styles:
    """The style sheets of a page, in order."""
    styles = Styles(open_file)
    for element in (one for root in roots for one in root.iter("style", "link")):
        media = element.get("media") or ""
        relations = (element.get("rel") or "").lower().split()
        if element.tag == "style":
            styles.add("".join(element.itertext()), media)
        elif "stylesheet" in relations and "alternate" not in relations:
            styles.open(element.get("href") or "", media)
    return styles


def join_labels(labels: Iterable[str]) -> str:
    """Short texts of one kind as one text, one after the other; those that are no single words once."""
    joined: dict[str | int, str] = {}
    for number, label in enumerate(one.strip() for one in labels):
        joined[label if len(label) > _WORD else number] = label
    return " ".join(filter(None, joined.values()))


class _Here(NamedTuple):
    """What holds within an element.

    Attributes:
        look: how its text is shown; it is hidden where styles hide the text but not its place.
        exact: whether white space is kept.
        row: whether its children stand beside each other.
    """

    look: Look = Look(size=12.0, colour="000000")
    exact: bool = False
    row: bool = False


class _Page(Walk):
    """Reads one page; `open_file` opens the style sheets of pages in it."""

    def __init__(self, builder: TextBuilder, account: Account, open_file: Open | None) -> None:
        self._builder = builder
        self._account = account
        self._open = open_file
        self._labels: dict[str, list[str]] = {}
        self._drawn = self._drawings = 0
        self._backgrounds: set[str] = set()
        self.state = _Here()

    def read(self, roots: list[Any]) -> None:
        for element in (one for root in roots for one in root.iter("title", "meta")):
            if element.tag == "title" and element.getparent() is not None and element.getparent().tag == "head":
                self._label("titles", "".join(element.itertext()))
            elif element.get("http-equiv", "").lower() == "refresh" and "=" in (element.get("content") or ""):
                self._account.add("jumps to other pages", weight=Account.UNKNOWN)
        for root in roots:
            if isinstance(root.tag, str):
                self.walk(root)
        if self._drawn > _LETTERS:
            self._account.add("drawings", self._drawings, weight=self._drawn / _LETTER)
        for place, labels in self._labels.items():
            self._account.add_beside(place, join_labels(labels))

    def _label(self, place: str, text: str | None) -> None:
        if text:
            self._labels.setdefault(place, []).append(text)

    def _read_apart(self, element: Any, here: _Here, builder: TextBuilder) -> TextBuilder:
        kept = self._builder, self.state
        self._builder, self.state = builder, here
        self.walk(element)
        self._builder, self.state = kept
        return builder

    def begin(self, element: Any) -> bool:
        values = declared(_style(element))
        here = _within(element, values, self.state)
        if self._leave_out(element, values, here):
            return True
        self._separate(element, values)
        self.state = here
        if element.tag == "br":
            self._builder.end_line()
        return False

    def end(self, element: Any) -> None:
        self._separate(element, declared(_style(element)))

    def text(self, text: str | None) -> None:
        put(self._builder, self._account, text, self.state.look, exact=self.state.exact)

    def comment(self, text: str) -> None:
        if text.startswith(_DATA):
            self.text(text[len(_DATA) :].removesuffix("]]"))

    def _separate(self, element: Any, values: Declared) -> None:
        """Put what stands between an element and its neighbours."""
        display = word(values, "display")
        cell = display == "table-cell" if display else element.tag in _CELLS
        if cell or self.state.row or (element.tag == "tspan" and "x" in element.attrib):
            self._builder.add(" ")
        elif display in _LINES or (not display and element.tag in _BLOCKS):
            self._builder.block(2 if element.tag in _PARAGRAPHS else 1)

    def _leave_out(self, element: Any, values: Declared, here: _Here) -> bool:
        """Whether an element is not read at its place; what is seen of it is counted, or read elsewhere."""
        tag, whole = element.tag, element is self.top and element.getparent() is not None
        if tag in _NEVER or tag == "script":
            runs = tag == "script" and _PROGRAMS.match(element.get("type", "").lower())
            self._account.add("scripts", int(bool(runs)))
            return True
        if not whole and _is_hidden(element, values):
            self._read_apart(element, here, self._account.hidden)
            return True
        around = element.get("role") or tag if _is_around(element) else None
        closed = "closed details" if tag == "details" and "open" not in element.attrib else None
        if not whole and (around or closed):
            self._account.add_beside(closed or around or "", self._read_apart(element, here, TextBuilder()).text)
            return True
        self._count_attributes(element, values)
        if tag in _LABELS:
            for one in element.iter("option") if tag in ("select", "datalist") else (element,):
                self._label(_LABELS[tag], one.get("label") or "".join(one.itertext()))
            for one in element.iter("option", "optgroup"):
                self._count_attributes(one, {})
            return True
        return self._leave_out_part(element, values, here)

    def _leave_out_part(self, element: Any, values: Declared, here: _Here) -> bool:
        tag, kind = element.tag, (element.get("type") or "text").lower()
        if tag == "iframe" and element.get("srcdoc"):
            add_html(self._builder, element.get("srcdoc"), self._account, open_file=self._open)
        elif tag in _MEDIA:
            self._account.add("embedded objects", weight=Account.UNKNOWN)
            self._account.hidden.add("".join(element.itertext()))  # which is shown where the object is not
        elif tag in _PICTURES or (tag == "input" and kind == "image"):
            self._account.add_picture(*_size(element, values))
        elif tag == "input":
            if kind not in _VALUE_FIELDS:
                put(self._builder, self._account, element.get("value"), here.look, exact=here.exact)
        else:
            if tag in _DRAWN:
                self._drawn += max(20, len(element.get("d", "")), len(element.get("points", "")), 100 * (tag == "use"))
            self._drawings += tag == "svg"
            is_link = tag == "a" and "#" in (element.get("href") or "")
            return is_link and bool(_MARK.fullmatch("".join(element.itertext())))
        return True

    def _count_attributes(self, element: Any, values: Declared) -> None:
        """Read the attributes of an element that are seen; count pictures behind it, and attributes that run."""
        for name, value in element.items():
            if name in _LABEL_ATTRIBUTES:
                self._label(_LABEL_ATTRIBUTES[name], value)
            elif (name.startswith("on") and value.strip()) or _PROGRAM.match(value):
                self._account.add("scripts")
            elif name == "background" and value:
                self._add_background(value)
        for name in ("background", "background-image"):
            for token in values.get(name, ()):
                if token.type == "url":
                    self._add_background(token.value)
                elif token.type == "function" and token.lower_name in ("url", "image-set"):
                    self._add_background("".join(str(getattr(one, "value", "")) for one in token.arguments))

    def _add_background(self, address: str) -> None:
        """Count a picture behind the text, once however often it is shown."""
        sign = address.lower().startswith("data:") and len(address) < _SMALL_DATA
        if not sign and address not in self._backgrounds:
            self._backgrounds.add(address)
            self._account.add("pictures", weight=Account.UNKNOWN)


def _style(element: Any) -> str:
    """What an element declares; parts of drawings do so by attributes, too."""
    style = element.get("style") or ""
    if element.tag not in _DRAWING:
        return style
    return ";".join(f"{name}:{element.get(name)}" for name in _HINTS if element.get(name)) + f";{style}"


def _within(element: Any, values: Declared, above: _Here) -> _Here:
    """What holds within an element."""
    hints = _hinted(element, above.look)
    exact = above.exact or element.tag in ("pre", "listing")
    if not values:
        return above._replace(look=hints, exact=exact, row=False)
    space, visibility = word(values, "white-space"), word(values, "visibility")
    hidden = hints.hidden if visibility not in ("hidden", "collapse", "visible") else visibility != "visible"
    return _Here(
        look=look_of(values, hints)._replace(hidden=hidden),
        exact=space.startswith(("pre", "break-spaces")) and space != "pre-line" if space else exact,
        row=word(values, "display") in _ROWS,
    )


def _hinted(element: Any, above: Look) -> Look:
    """The look that an element has by itself or by its attributes."""
    tag, look = element.tag, above
    if tag == "a" and element.get("href") is not None:
        look = look._replace(colour=_LINK)
    elif tag == "font" and element.get("color"):
        look = look._replace(colour=colour_of(element.get("color")))
    elif tag == "body" and element.get("text"):
        look = look._replace(colour=colour_of(element.get("text")))
    elif tag == "svg":
        look = look._replace(background=None)  # its shapes have colours of their own
    elif tag == "bdo":
        look = look._replace(moved=True)
    if element.get("bgcolor"):
        look = look._replace(background=colour_of(element.get("bgcolor")))
    return look


def _size(element: Any, values: Declared) -> tuple[float | None, float | None]:
    """Width and height of a picture in points, if the page says a side of it and no style says otherwise."""
    if any(name in values for name in ("min-width", "min-height", "transform", "scale", "zoom")):
        return None, None
    sides = []
    for side in ("width", "height"):
        stated = element.get(side, "").removesuffix("px")
        if side in values and word(values, side) != "auto":
            sides.append(length(values, side, 12.0))
        elif stated.isdecimal():
            sides.append(float(stated) * 0.75)
    return (sides[0], sides[-1]) if sides else (None, None)


def _is_around(element: Any) -> bool:
    """Whether an element stands around the text of the page."""
    if element.tag in _AROUND or element.get("role") in _ROLES:
        return True
    return element.tag in _ENDS and not any(parent.tag in _BODIES for parent in element.iterancestors())


def _is_hidden(element: Any, values: Declared) -> bool:
    display = word(values, "display")
    if display == "none" or element.tag in _INSTEAD or (values and is_cut_off(values)):
        return True
    closed = "popover" in element.attrib or (element.tag == "dialog" and "open" not in element.attrib)
    return (closed or "hidden" in element.attrib) and not display
