"""XML of any kind to text, with spaces and line ends where its structure has them.

Where an element holds only elements, their names and the white space between them show whether they are letters, words
or paragraphs.
"""

import re
from enum import Enum
from typing import Any

from lxml import etree

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode_page
from dgmark_documents.elements import local
from dgmark_documents.html_text import add_html, page_pieces, read_html
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.xml_pieces import declares_texts, xml_pieces

_EXACT = frozenset(("programlisting", "screen", "literallayout", "synopsis", "pre", "code", "verbatim", "codeblock"))
_LINE_ENDS = frozenset(("lb", "br", "newline", "cr"))
_RUNNING = frozenset(("s", "seg", "sentence", "sent", "cl", "phr", "w", "pc", "tok", "token", "word", "punc"))
_LETTERS = frozenset(("c", "char", "g"))
_NOT_SHOWN = frozenset(("script", "style", "binary", "binaryObject"))
_HEADERS = frozenset(("teiHeader",))
_MARKUP = re.compile(r"</[A-Za-z][A-Za-z0-9]*\s*>|<(?:br|hr|p)\s*/?>", re.IGNORECASE)
_VALUE = re.compile(r"[^\W\d_]+[.,;:!?]?")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_BEFORE = tuple(".,;:!?)]}»”’…%")  # signs with no space before them
_BEHIND = tuple("([{«“‘¿¡")


class _Parts(Enum):
    """What the elements in an element are."""

    TEXT = "text"  # white space and all else is as it stands
    LETTERS = "letters"
    WORDS = "words"
    BLOCKS = "blocks"


def read_xml(content: bytes) -> Reading:
    """Read all texts of an XML file, in order.

    Raises:
        Refusal: it is no XML, is nested too deeply, or most of it is not read.
    """
    source, how = decode_page(content)
    parser = etree.XMLParser(
        encoding="utf-8", huge_tree=True, no_network=True, resolve_entities=False, load_dtd=False, recover=True
    )
    root = etree.fromstring(source.encode("utf-8", "replace"), parser) if source.strip() else None
    if root is None:
        raise Refusal(
            "is no XML, although its name says so: it is damaged, or it is plain text and should be named .txt"
        )
    if local(root) in ("html", "svg"):
        return read_html(content)
    builder, account = TextBuilder(), Account()
    _walk(root, builder, account)
    for piece in xml_pieces(root, "", passed=_NOT_SHOWN):
        account.held += page_pieces(piece.text) if _MARKUP.search(piece.text) else [piece]
    if declares_texts(source):
        account.add_unknown("texts declared as entities")
    return account.reading(builder.text, how=(*how, *_words_in_attributes(root, builder.text)))


def _words_in_attributes(root: Any, text: str) -> list[str]:
    """A note if attributes hold as many different words as may be a text; sentences in them are counted as unread."""
    values = {value for element in root.iter("*") for value in element.attrib.values() if _VALUE.fullmatch(value)}
    letters = sum(map(len, values))
    if letters < max(Account.LETTERS, Account.SHARE * len(text)):
        return []
    return [f"attributes hold {letters:,} letters of single words, which are not read"]


def _walk(root: Any, builder: TextBuilder, account: Account) -> None:
    running = _RUNNING | {"p"} if local(root) == "tt" else _RUNNING  # subtitles: sentences go on in the next paragraph
    parts = [_Parts.BLOCKS]  # of the open elements
    exact = [False]
    skipped = None
    events = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in events:
        if event == "start":
            name = local(element)
            if name in _NOT_SHOWN or (name in _HEADERS and element is not root):
                account.add("scripts", int(name == "script"))
                if name in _HEADERS:
                    header = TextBuilder()
                    _walk(element, header, account)
                    account.add_beside("headers", header.text)
                events.skip_subtree()
                skipped = element
                continue
            _separate(builder, parts[-1], element)
            if name in _LINE_ENDS and not len(element) and not element.text:
                builder.end_line()
            parts.append(_parts_of(element, running))
            exact.append(exact[-1] or name in _EXACT or element.get(_SPACE) == "preserve")
            _add(builder, account, element.text, exact[-1])
        elif event == "end" and element is not skipped:
            parts.pop()
            exact.pop()
            if parts[-1] is _Parts.BLOCKS:
                builder.block()
        if event != "start":
            skipped = None
            if element is not root and (parts[-1] is _Parts.TEXT or (element.tail or "").strip()):
                _add(builder, account, element.tail, exact[-1])


def _separate(builder: TextBuilder, parts: _Parts, element: Any) -> None:
    """Put what stands between an element and the one before it."""
    if parts is _Parts.BLOCKS:
        builder.block()
    elif parts is _Parts.WORDS and element.getprevious() is not None:
        before, text = element.getprevious(), next(element.itertext(), "")
        joined = element.get("join") in ("left", "both") or before.get("join") in ("right", "both")
        if not joined and not text.startswith(_BEFORE) and not (before.text or "").endswith(_BEHIND):
            builder.add(" ")


def _add(builder: TextBuilder, account: Account, text: str | None, exact: bool) -> None:
    """Add a text; in feeds and messages texts hold pages of HTML."""
    if text and _MARKUP.search(text):
        add_html(builder, text, account)
    elif text:
        builder.add(text, exact=exact and bool(text.strip()))


def _parts_of(element: Any, running: frozenset[str]) -> _Parts:
    """What the elements in an element are, by the text and the white space between them."""
    children = [child for child in element if isinstance(child.tag, str)]
    if not children:
        return _Parts.TEXT
    own = [element.text or "", *(child.tail or "" for child in element)]
    if any(text.strip() for text in own):
        return _Parts.TEXT
    spaced = sum((child.text or "").endswith(" ") for child in children)
    if any(text and "\n" not in text for text in own[1:-1]) or 2 * spaced >= len(children):
        return _Parts.TEXT
    names = set(map(local, children))
    return _Parts.LETTERS if names <= _LETTERS else _Parts.WORDS if names <= running else _Parts.BLOCKS
