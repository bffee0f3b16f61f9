"""HTML to text, as a browser shows it: also the chapters of an EPUB, and what becomes of a Word document.

The parser is lxml's, which loads nothing and runs nothing.
"""

import re
from collections.abc import Iterable
from typing import Any

from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.text_builder import TextBuilder

# not text for a reader, wherever it stands
_NEVER = frozenset((
    "head", "script", "style", "template", "noscript", "svg", "math", "iframe", "object", "embed", "audio", "video",
    "canvas", "map", "button", "select", "input", "textarea", "datalist", "dialog", "progress", "meter", "rp", "rt",
))  # fmt: skip
# the parts of a page around its text
_AROUND = frozenset(("nav", "aside", "menu"))
_ENDS = frozenset(("header", "footer"))
_ROLES = frozenset(("navigation", "banner", "contentinfo", "complementary", "search"))
_BODIES = frozenset(("article", "main", "section", "blockquote"))
_BLOCKS = frozenset((
    "address", "article", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li",
    "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul",
))  # fmt: skip
_PARAGRAPHS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "pre", "blockquote", "table",
))  # fmt: skip
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
_EXACT = re.compile(r"white-space\s*:\s*(pre|break-spaces)")


def read_html(content: bytes, encoding: str | None = None) -> Reading:
    """Read a page of HTML: its text without scripts, hidden parts, navigation, page header and page footer.

    Raises:
        Refusal: the page is nested too deeply.
    """
    builder = TextBuilder()
    left_out = add_html(builder, content, encoding=encoding)
    notes = (f"{left_out} characters of navigation, page header and page footer are left out",) if left_out else ()
    return Reading(builder.text, notes)


def add_html(
    builder: TextBuilder, content: bytes, *, encoding: str | None = None, gap: int = 2, exact: bool = False
) -> int:
    """Add the text of a page to `builder`.

    Args:
        builder: where the text goes.
        content: the page.
        encoding: its character set; by default the one that it names.
        gap: line ends between paragraphs; 2 leaves an empty line between them, as browsers copy them.
        exact: keep white space as it stands.

    Returns:
        The number of characters that are left out as navigation, page header and page footer.

    Raises:
        Refusal: the page is nested too deeply.
    """
    from lxml import etree

    parser = etree.HTMLParser(encoding=encoding, huge_tree=True, no_network=True)
    root = etree.fromstring(content, parser) if content.strip() else None
    fatal = [entry for entry in parser.error_log if entry.type_name == "ERR_RESOURCE_LIMIT"]
    if fatal:
        raise Refusal(f"is nested too deeply to be read ({fatal[0].message})")
    if root is None:
        return 0
    return _walk(etree.iterwalk(root, events=("start", "end", "comment", "pi")), builder, gap, exact)


def _walk(events: Any, builder: TextBuilder, gap: int, exact: bool) -> int:
    left_out, preserved = 0, 0
    skipped = None
    for event, element in events:
        tag = element.tag if isinstance(element.tag, str) else None
        if event == "start":
            if _around(element):
                left_out += sum(len(piece.strip()) for piece in element.itertext())
            if tag in _NEVER or _around(element) or _hidden(element) or _is_reference(element):
                events.skip_subtree()
                skipped = element
                continue
            if tag in _BLOCKS:
                builder.block(gap if tag in _PARAGRAPHS else 1)
            if tag == "br":
                builder.end_line()
            preserved += _is_exact(element)
            builder.add(element.text, exact=exact or preserved > 0)
            continue
        if event == "end":
            if element is not skipped:
                preserved -= _is_exact(element)
                if tag in _BLOCKS:
                    builder.block(gap if tag in _PARAGRAPHS else 1)
            skipped = None
        builder.add(element.tail, exact=exact or preserved > 0)
    return left_out


def _around(element: Any) -> bool:
    """Whether an element stands around the text of the page."""
    if element.tag in _AROUND or element.get("role") in _ROLES:
        return True
    return element.tag in _ENDS and not any(parent.tag in _BODIES for parent in element.iterancestors())


def _hidden(element: Any) -> bool:
    style = element.get("style")
    return (
        "hidden" in element.attrib
        or element.get("aria-hidden") == "true"
        or bool(style and _HIDDEN.search(style.lower()))
    )


def _is_reference(element: Any) -> bool:
    """Whether an element is the mark of a note: a raised link within the document, or a note's link back."""
    if element.tag == "sup":
        return _covers(element, [one for one in element.iter("a") if "#" in (one.get("href") or "")])
    if element.tag != "a" or "#" not in (element.get("href") or ""):
        return False
    return element.get("href").startswith(("#footnote-ref", "#endnote-ref")) or _covers(element, element.iter("sup"))


def _covers(element: Any, parts: Iterable[Any]) -> bool:
    """Whether all of the element's text stands in these parts of it."""
    text = "".join(element.itertext()).strip()
    return bool(text) and text == "".join("".join(part.itertext()) for part in parts).strip()


def _is_exact(element: Any) -> int:
    return int(element.tag in ("pre", "listing") or bool(_EXACT.search((element.get("style") or "").lower())))
