"""The objects of a PDF file, looked through without a parser: damaged streams, scripts, and strings that are shown.

PDFium gives no access to most of the objects of a file, and passes over what it cannot follow, such as the value of a
field in a form that the catalog does not name. The strings of comments and fields are found here by their keys.
"""

import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

# streams that are packed by zlib alone; PDFium shows what it can unpack of a damaged one
_STREAM = re.compile(rb"(?<!end)stream\r?\n")
_PACKED = re.compile(rb"/Filter\s*(/FlateDecode\b|\[\s*/FlateDecode\s*\])")
# pictures, fonts, and what describes a document or its colours
_NO_TEXT = re.compile(rb"/(Image|Length1|Type1C|CIDFontType0C|OpenType|Metadata|Alternate)\b")
_OBJECTS = re.compile(rb"/Type\s*/ObjStm\b")
_ENCRYPTED = re.compile(rb"/Encrypt\s*(\d+\s+\d+\s+R|<<)")
_DICTIONARY, _AT_ONCE = 2000, 2**16  # bytes
_MOST = 2**27  # bytes of object streams that are looked through

_SCRIPT = re.compile(rb"/JS\b")
# keys of strings that a page, a form or a tool tip shows, and the place that notes name
_PLACES = {
    b"Contents": "comments", b"OverlayText": "comments", b"RC": "comments", b"V": "form fields", b"Opt": "form fields",
    b"CA": "form fields", b"AC": "form fields", b"TU": "tool tips", b"Alt": "alternative texts",
}  # fmt: skip
_SHOWN = re.compile(rb"/(Contents|OverlayText|RC|V|Opt|CA|AC|TU|Alt)\s*(\d+\s+\d+\s+R\b|[(<\[])")
_VALUE = re.compile(rb"\b(\d+)\s+\d+\s+obj\s*(?=[(<\[])")
_TOKEN = re.compile(rb"[()\[\]]|<<|<[0-9A-Fa-f\s]*>|\\.", re.DOTALL)
_PAREN = re.compile(rb"[()]|\\.", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|\r\n|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b" ", b"f": b" ", b"\n": b"", b"\r": b"", b"\r\n": b""}
_TAG = re.compile(r"<[^<>]*>")


class FileObjects(NamedTuple):
    """What the objects of a PDF file hold.

    Attributes:
        damaged: the number of packed streams, other than pictures and fonts, that cannot be unpacked to their end.
        scripts: the number of scripts.
        strings: places and texts of strings that readers show.
    """

    damaged: int = 0
    scripts: int = 0
    strings: tuple[tuple[str, str], ...] = ()


def scan(content: bytes) -> FileObjects:
    """Look through the objects of a file. Strings of an encrypted file are not found."""
    if _ENCRYPTED.search(content):
        return FileObjects(scripts=len(_SCRIPT.findall(content)))
    damaged, parts = _parts(content)
    strings: list[tuple[str, str]] = []
    scripts = 0
    for part in parts:
        scripts += len(_SCRIPT.findall(part))
        strings += _shown_strings(part)
    return FileObjects(damaged, scripts, tuple(dict.fromkeys(strings)))


def _parts(content: bytes) -> tuple[int, list[bytes]]:
    """The number of damaged streams, and the bytes of a file outside of streams and in streams of objects."""
    damaged = at = size = 0
    outside, parts = [], []
    while found := _STREAM.search(content, at):
        outside.append(content[at : found.start()])
        at = found.end()
        dictionary = content[max(0, found.start() - _DICTIONARY) : found.start()].rpartition(b"obj")[2]
        empty = content[at : at + 12].lstrip().startswith(b"endstream")
        if not empty and _PACKED.search(dictionary) and not _NO_TEXT.search(dictionary):
            keep = bool(_OBJECTS.search(dictionary)) and size < _MOST
            whole, at, unpacked = _unpack(content, at, keep)  # the search goes on behind it: nothing is unpacked twice
            damaged += not whole
            size += len(unpacked)
            parts.append(unpacked)
        else:
            end = content.find(b"endstream", at)
            if end < 0:
                break
            at = end
    outside.append(content[at:])
    return damaged, [b"\n".join(outside), *filter(None, parts)]


def _unpack(content: bytes, start: int, keep: bool) -> tuple[bool, int, bytes]:
    """Unpack zlib data that begins at `start`.

    Returns:
        Whether it unpacks to its end, where its checksum stands; where it stopped; the data, if it is to be kept.
    """
    stream, place, kept = zlib.decompressobj(), start, bytearray()
    try:
        for place in range(start, len(content), _AT_ONCE):
            piece = content[place : place + _AT_ONCE]
            while piece and not stream.eof:
                unpacked = stream.decompress(piece, _AT_ONCE)
                if keep and len(kept) < _MOST:
                    kept += unpacked
                piece = stream.unconsumed_tail
            if stream.eof:
                return True, min(place + _AT_ONCE, len(content)) - len(stream.unused_data), bytes(kept)
    except zlib.error:
        return False, place, bytes(kept)
    return False, len(content), bytes(kept)


def _shown_strings(part: bytes) -> Iterator[tuple[str, str]]:
    """The strings behind the keys that are shown, also where an object of its own holds the string."""
    objects = {one[1]: one.end() for one in _VALUE.finditer(part)}
    end = 0  # each byte is read once: keys in a string are not looked at, and an object only when it is first named
    for found in _SHOWN.finditer(part):
        named = found[2].endswith(b"R")
        start = objects.pop(found[2].split()[0], None) if named else found.start(2)
        if start is None or (not named and start < end):
            continue
        texts, stop = _strings(part, start)
        end = end if named else stop
        yield from ((_PLACES[found[1]], text) for text in texts if text)


def _strings(part: bytes, start: int) -> tuple[list[str], int]:
    """The string at `start`, or those of the array that begins there, and where it ends."""
    depth, at = 0, start
    texts: list[str] = []
    found = _TOKEN.match(part, start)
    if not found:
        return texts, at
    while found:
        token, at = found[0], found.end()
        if token == b"(":
            raw, at = _literal(part, at)
            texts.append(_text(raw))
        elif token == b"[":
            depth += 1
        elif token == b"]":
            depth -= 1
        elif len(token) > 2 and token.startswith(b"<"):
            texts.append(_text(_from_hex(token)))
        elif token == b"<<":
            break  # a dictionary: its keys are found by themselves
        if depth <= 0:
            break
        found = _TOKEN.search(part, at)
    return texts, at if found else len(part)


def _literal(part: bytes, start: int) -> tuple[bytes, int]:
    """The bytes of a string in round brackets, which may be nested, and the place behind it."""
    depth, at = 1, start
    while depth and (found := _PAREN.search(part, at)):
        depth += {b"(": 1, b")": -1}.get(found[0], 0)
        at = found.end()
    return _ESCAPE.sub(_unescaped, part[start : at - 1]), at


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255]) if code[:1].isdigit() else _ESCAPED.get(code, code)


def _from_hex(token: bytes) -> bytes:
    digits = b"".join(token[1:-1].split())
    return bytes.fromhex((digits + b"0" * (len(digits) % 2)).decode("ascii"))


def _text(raw: bytes) -> str:
    """The text of a string; empty if it holds other data, such as a signature."""
    if raw.startswith((b"\xfe\xff", b"\xff\xfe")):
        text = raw.decode("utf-16", "replace")
    elif raw.startswith(b"\xef\xbb\xbf"):
        text = raw.decode("utf-8-sig", "replace")
    else:
        text = raw.decode("latin-1")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if any(one < " " and one not in "\t\n" for one in text):
        return ""
    return _TAG.sub(" ", text) if text.lstrip().startswith("<") else text
