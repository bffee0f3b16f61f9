"""Bytes to text: finds the character set, and refuses what is no text.

Knows nothing of kinds of documents.
"""

import codecs
import re
import unicodedata
from typing import Any

from dgmark_documents.reading import Refusal

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE_ENDS = re.compile("\r\n?")
# control characters that texts hold: tab, line feed, form feed, carriage return, and those that steer a terminal
_PLAIN_CONTROLS = frozenset("\t\n\f\r\x1b\x9b\b")
# the sets of texts from before Unicode; Windows' Latin sets contain the ISO ones
_LEGACY = [*(f"cp{n}" for n in range(1250, 1259)), "cp874", "cp932", "cp949", "big5", "gb18030", "euc_jp", "koi8_r"]
_LEGACY += ["mac_roman"]
# what a page states in its head, in `<meta http-equiv="content-type">` and in the declaration of XML
_IN_CONTENT = re.compile(r"""charset\s*=\s*["']?\s*([^\s"';]+)""", re.IGNORECASE)
_IN_DECLARATION = re.compile(rb"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([^"']{1,40})["']""")
# what browsers take for the encodings that a page can only state by mistake, and for a part of a larger set
_MEANT = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252", "gbk": "gb18030"}
_HEAD = 2**16  # bytes of a page in which its character set is stated
# of the first characters, the share that may be unreadable
_SAMPLE, _MAX_UNREADABLE = 100_000, 0.05


def decode(content: bytes) -> tuple[str, list[str]]:
    """Decode a text file. Line ends of Windows and of old Macs become line feeds.

    UTF-8 is tried first, after the byte order marks; a text that is UTF-8 with few broken bytes is read as that.

    Returns:
        The text, and notes on how it was read.

    Raises:
        Refusal: the bytes are no text.
        ModuleNotFoundError: the text is not Unicode, and charset-normalizer is not installed.
    """
    text, notes = _decode(content)
    check_legible(text)
    return unify_line_ends(text), notes


def decode_page(content: bytes) -> tuple[str, list[str]]:
    """Decode a page of HTML as browsers do, by the WHATWG's encoding standard. Line ends stay.

    The byte order mark decides, then what the page states. Labels have the meaning that they have on the web:
    "iso-8859-1" is Windows-1252, and UTF-16 that is stated in letters of ASCII is UTF-8. A page that states nothing is
    decoded as plain text is.

    Returns:
        The page, and notes on how it was read.

    Raises:
        Refusal: the page states nothing, and its bytes are no text.
        ModuleNotFoundError: webencodings is not installed.
    """
    encoding = None if content.startswith(tuple(mark for mark, _ in _MARKS)) else _stated_encoding(content)
    if encoding is None:
        return _decode(content)
    return encoding.codec_info.decode(content, "replace")[0], []


def _stated_encoding(content: bytes) -> Any:
    """The encoding that a page states, as webencodings has it; None if it states none that browsers know."""
    from webencodings import lookup

    labels = _stated_in_metas(content[:_HEAD])
    declared = _IN_DECLARATION.match(content)
    labels += [declared[1].decode("latin-1")] if declared else []
    stated = next(filter(None, map(lookup, labels)), None)
    if stated is None:
        return None
    return lookup(_MEANT.get(stated.name, stated.name))


def _stated_in_metas(head: bytes) -> list[str]:
    """The labels of character sets in a page's `meta` elements, in order."""
    from lxml import etree

    root = etree.fromstring(head, etree.HTMLParser(encoding="iso-8859-1", no_network=True)) if head.strip() else None
    labels = []
    for element in () if root is None else root.iter("meta"):
        if element.get("charset") is not None:
            labels.append(element.get("charset"))
        elif element.get("http-equiv", "").lower() == "content-type":
            labels += _IN_CONTENT.findall(element.get("content", ""))[:1]
    return labels


def unify_line_ends(text: str) -> str:
    """The text with a line feed for every line end of Windows and of old Macs."""
    return _LINE_ENDS.sub("\n", text)


def check_legible(text: str) -> None:
    """Refuse what is no text for a reader: controls, private, missing and unassigned characters.

    Raises:
        Refusal: more than a twentieth of the characters are of these kinds.
    """
    sample = text[:_SAMPLE]
    bad = sum((not one.isprintable() and not _is_space(one)) or one == "\ufffd" for one in sample)
    if bad > _MAX_UNREADABLE * len(sample):
        raise Refusal(
            "holds no readable text: "
            f"{bad} of its first {len(sample)} characters are control characters or stand for none. "
            "Give the text itself, or a document that holds it"
        )


def _is_space(one: str) -> bool:
    # Cf: joiners and direction marks of many scripts, the soft hyphen
    return one in _PLAIN_CONTROLS or unicodedata.category(one) in ("Zs", "Zl", "Zp", "Cf")


def _decode(content: bytes) -> tuple[str, list[str]]:
    for mark, name in _MARKS:
        if content.startswith(mark):
            try:
                return content.decode("utf-8-sig" if name == "utf-8" else name), []
            except UnicodeDecodeError as error:
                raise Refusal(f"is damaged: it says that it is {name.upper()}, but {error.reason}") from error
    try:
        return content.decode(), []
    except UnicodeDecodeError:
        pass
    mended = content.decode("utf-8", "replace")
    broken = mended.count("\ufffd")
    if broken < sum(one > "\x7f" for one in mended) - broken:
        return mended, [f"read as UTF-8 with {broken} broken characters"]
    return _guess(content)


def _guess(content: bytes) -> tuple[str, list[str]]:
    if b"\0" in content:
        raise Refusal("holds binary data, not text: give the text itself, or a document that holds it")
    from charset_normalizer import from_bytes

    found = from_bytes(content[:_SAMPLE], cp_isolation=_LEGACY)
    best = found.best()
    if best is None:
        raise Refusal("holds binary data, or text in a character set that is not recognised: save it as UTF-8")
    # many Western texts fit several sets equally; this one is by far the commonest
    western = any(
        "cp1252" in one.could_be_from_charset and (one.chaos, -one.coherence) <= (best.chaos, -best.coherence)
        for one in found
    )
    name = "cp1252" if western else best.encoding
    text = content.decode(name, "replace")
    return text, [f"it is not UTF-8 and was read as {name}; if this is wrong, save it as UTF-8"]
