"""Bytes to text: finds the character set, and refuses what is no text.

Knows nothing of kinds of documents.
"""

import codecs
import re
import unicodedata

from dgmark.documents.reading import Refusal

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE_ENDS = re.compile("\r\n?")
# control characters that texts hold: tab, line feed, form feed, carriage return, escape
_PLAIN_CONTROLS = frozenset("\t\n\f\r\x1b")
# the sets of texts from before Unicode; Windows' Latin sets contain the ISO ones
_LEGACY = [*(f"cp{n}" for n in range(1250, 1259)), "cp874", "cp932", "cp949", "big5", "gb18030", "euc_jp", "koi8_r"]
_LEGACY += ["mac_roman"]
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
