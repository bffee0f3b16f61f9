"""HTML to text, as a browser shows it: also the chapters of an EPUB, and pages in Word documents and e-mails.

The parser is lxml's, which loads nothing and runs nothing.
"""

import re
from collections.abc import Iterable
from typing import Any

from dgmark.documents.account import Account
from dgmark.documents.charsets import decode_page
from dgmark.documents.markup import ROLES, markup_pieces
from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.text_builder import TextBuilder

# not text for a reader, wherever it stands
_NEVER = frozenset((
    "head", "style", "template", "noscript", "title", "desc", "annotation", "annotation-xml", "datalist", "select",
    "progress", "meter", "rp", "rt",
))  # fmt: skip
# seen, and not read
_MEDIA = frozenset(("iframe", "frame", "object", "embed", "audio", "video", "canvas"))
_PICTURES = frozenset(("img", "image"))
_LETTERS = 2000  # a drawing's path is as long if it draws letters; a sign's is shorter
_MARK = 10  # letters of the longest mark of a note
_PROGRAMS = re.compile("$|module$|.*(java|ecma)script")  # the types of scripts that browsers run
_FIELDS = frozenset(("text", "search", "email", "tel", "url", "button", "submit", "reset"))
# the parts of a page around its text
_AROUND = frozenset(("nav", "aside", "menu"))
_ENDS = frozenset(("header", "footer"))
_BODIES = frozenset(("article", "main", "section", "blockquote"))
_BLOCKS = frozenset((
    "address", "article", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li",
    "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_PARAGRAPHS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "pre", "blockquote", "table",
))  # fmt: skip
_HIDDEN = re.compile(r"display\s*:\s*none")
_VISIBILITY = re.compile(r"visibility\s*:\s*(\w+)")
_EXACT = re.compile(r"white-space\s*:\s*(pre|break-spaces)")


def read_html(content: bytes) -> Reading:
    """Read a page of HTML: its text without scripts, hidden parts, navigation, page header and page footer.

    Raises:
        Refusal: the page is nested too deeply, or most of it is not read.
    """
    page, how = decode_page(content)
    builder, account = TextBuilder(), Account()
    add_html(builder, page, account)
    account.held += markup_pieces(page)
    return account.reading(builder.text, how=tuple(how))


def add_html(builder: TextBuilder, page: str, account: Account) -> None:
    """Add the text of a page to `builder`. Paragraphs have an empty line between them, as browsers copy them.

    Args:
        builder: where the text goes.
        page: the page.
        account: counts what is left out, and takes what stands around the text of the page.

    Raises:
        Refusal: the page is nested too deeply.
    """
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, no_network=True)
    root = etree.fromstring(page.encode("utf-8", "replace"), parser) if page.strip() else None
    fatal = [entry for entry in parser.error_log if entry.type_name == "ERR_RESOURCE_LIMIT"]
    if fatal:
        raise Refusal(f"is nested too deeply to be read ({fatal[0].message})")
    while root is not None:  # what stands behind the end of a page has a root of its own
        _walk(root, builder, account)
        root = root.getnext()


def _add_beside(element: Any, account: Account) -> None:
    """Read a part of the page that stands around its text behind it."""
    builder = TextBuilder()
    _walk(element, builder, account)
    account.add_beside(element.get("role") or element.tag, builder.text)


def _walk(top: Any, builder: TextBuilder, account: Account) -> None:
    from lxml import etree

    events = etree.iterwalk(top, events=("start", "end", "comment", "pi"))
    preserved = 0
    skipped = None
    visible = [True]

    def add(text: str | None) -> None:
        if visible[-1]:
            builder.add(text, exact=preserved > 0)

    for event, element in events:
        tag = element.tag if isinstance(element.tag, str) else None
        if event == "start":
            around = element is not top and _around(element)
            if around:
                _add_beside(element, account)
            if around or _leave_out(element, tag, builder, account):
                events.skip_subtree()
                skipped = element
                continue
            if tag in _BLOCKS:
                builder.block(2 if tag in _PARAGRAPHS else 1)
            if tag == "br":
                builder.end_line()
            preserved += _is_exact(element)
            stated = _VISIBILITY.search(_style(element))
            visible.append(stated[1] not in ("hidden", "collapse") if stated else visible[-1])
            add(element.text)
            continue
        if event == "end":
            if element is not skipped:
                preserved -= _is_exact(element)
                visible.pop()
                if tag in _BLOCKS:
                    builder.block(2 if tag in _PARAGRAPHS else 1)
            skipped = None
        if element is not top:
            add(element.tail)


def _leave_out(element: Any, tag: str | None, builder: TextBuilder, account: Account) -> bool:
    """Whether the text of an element is not read; what is seen of it is counted."""
    if "url(" in _style(element):
        account.add("pictures", weight=Account.UNKNOWN)
    if _hidden(element) or (tag in _NEVER and not element.get("shadowrootmode")):
        return True
    if tag == "script":
        account.add("scripts", int(bool(_PROGRAMS.match(element.get("type", "").lower()))))
    elif tag == "iframe" and element.get("srcdoc"):
        add_html(builder, element.get("srcdoc"), account)
    elif tag in _MEDIA:
        account.add("embedded objects", weight=Account.UNKNOWN)
    else:
        drawn = sum(len(path.get("d", "")) for path in element.iter("path")) if tag == "svg" else 0
        if tag in _PICTURES or drawn > _LETTERS:
            account.add_picture(*_size(element))
        elif tag == "input" and element.get("type", "text").lower() in _FIELDS:
            builder.add(element.get("value"))
        return _is_reference(element)
    return True


def _size(element: Any) -> tuple[float | None, float | None]:
    """Width and height of a picture in points, if the page says a side of it in pixels."""
    stated = [element.get(side, "").removesuffix("px") for side in ("width", "height")]
    sides = [int(side) * 0.75 for side in stated if side.isdecimal()]
    return (sides[0], sides[-1]) if sides else (None, None)


def _around(element: Any) -> bool:
    """Whether an element stands around the text of the page."""
    if element.tag in _AROUND or element.get("role") in ROLES:
        return True
    return element.tag in _ENDS and not any(parent.tag in _BODIES for parent in element.iterancestors())


def _hidden(element: Any) -> bool:
    closed = element.tag == "dialog" and "open" not in element.attrib
    return closed or "hidden" in element.attrib or bool(_HIDDEN.search(_style(element)))


def _style(element: Any) -> str:
    return str(element.get("style") or "").lower()


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


def _is_exact(element: Any) -> int:
    return int(element.tag in ("pre", "listing") or bool(_EXACT.search(_style(element))))
