"""`data:` addresses: what they hold."""

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from dgmark_documents.charsets import decode_page

_ADDRESS = re.compile(r"\s*data:([^,]*),(.*)", re.IGNORECASE | re.DOTALL)
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
_PAGES = ("html", "svg", "xml")  # of kinds of pages, such as application/xhtml+xml


def data_text(address: str | None) -> tuple[str, str] | None:
    """The kind and the text that a `data:` address holds.

    Args:
        address: an address of any sort.

    Returns:
        The kind, such as "text/html", and the text; None if the address is another, or holds no text.
    """
    found = _ADDRESS.match(address or "")
    if not found:
        return None
    kind, *settings = found[1].lower().split(";")
    kind = kind.strip() or "text/plain"
    if not is_page(kind) and not kind.startswith("text/"):
        return None
    content = unquote_to_bytes(found[2])
    if settings and settings[-1].strip() == "base64":
        letters = re.sub(rb"[^A-Za-z0-9+/_-]", b"", content).replace(b"-", b"+").replace(b"_", b"/")
        try:
            content = base64.b64decode(letters + b"=" * (-len(letters) % 4))
        except binascii.Error:
            return None
    stated = _CHARSET.search(found[1])
    if stated:
        try:
            return kind, content.decode(stated[1], "replace")
        except LookupError:
            pass
    return kind, decode_page(content)[0] if is_page(kind) else content.decode("utf-8", "replace")


def is_page(kind: str) -> bool:
    """Whether a media type is that of a page or a drawing."""
    return any(one in kind for one in _PAGES)
