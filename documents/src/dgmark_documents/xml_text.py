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
from dgmark_documents.walk import Walk
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
    """Read all texts of an XML file, in order."""
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
    account = Account()
    text = _Text(root, account).builder.text
    for piece in xml_pieces(root, "", passed=_NOT_SHOWN):
        account.held += page_pieces(piece.text) if _MARKUP.search(piece.text) else [piece]
    if declares_texts(source):
        account.add_unknown("texts declared as entities")
    return account.reading(text, how=(*how, *_words_in_attributes(root, text)))


def _words_in_attributes(root: Any, text: str) -> list[str]:
    """A note if attributes hold as many different words as may be a text; sentences in them are counted as unread."""
    values = {value for element in root.iter("*") for value in element.attrib.values() if _VALUE.fullmatch(value)}
    letters = sum(map(len, values))
    if letters < max(Account.LETTERS, Account.SHARE * len(text)):
        return []
    return [f"attributes hold {letters:,} letters of single words, which are not read"]


class _Text(Walk):
    """Reads a tree; its state is what the elements in an element are, and whether white space is kept."""

    def __init__(self, root: Any, account: Account) -> None:
        self.builder = TextBuilder()
        self._account = account
        # in subtitles, sentences go on in the next paragraph
        self._running = _RUNNING | {"p"} if local(root) == "tt" else _RUNNING
        self.state = _Parts.BLOCKS, False
        self.walk(root)

    def begin(self, element: Any) -> bool:
        name = local(element)
        if name in _NOT_SHOWN or (name in _HEADERS and element is not self.top):
            self._account.add("scripts", int(name == "script"))
            if name in _HEADERS:
                self._account.add_beside("headers", _Text(element, self._account).builder.text)
            return True
        parts, exact = self.state
        if parts is _Parts.BLOCKS:
            self.builder.block()
        elif parts is _Parts.WORDS and _stands_apart(element):
            self.builder.add(" ")
        if name in _LINE_ENDS and not len(element) and not element.text:
            self.builder.end_line()
        self.state = _parts_of(element, self._running), exact or name in _EXACT or element.get(_SPACE) == "preserve"
        return False

    def end(self, _: Any) -> None:
        if self.state[0] is _Parts.BLOCKS:
            self.builder.block()

    def text(self, text: str | None) -> None:
        if text and _MARKUP.search(text):  # feeds and messages hold pages of HTML as texts
            add_html(self.builder, text, self._account)
        elif text and (self.state[0] is _Parts.TEXT or text.strip()):
            self.builder.add(text, exact=self.state[1] and bool(text.strip()))


def _stands_apart(element: Any) -> bool:
    """Whether a space stands between a word and the one before it."""
    before, text = element.getprevious(), next(element.itertext(), "")
    if before is None or element.get("join") in ("left", "both") or before.get("join") in ("right", "both"):
        return False
    return not text.startswith(_BEFORE) and not (before.text or "").endswith(_BEHIND)


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
