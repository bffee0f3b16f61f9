"""E-mails (.eml) and web archives (.mht) to text, with Python's `email`."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from dgmark.documents.account import Account, Piece
from dgmark.documents.charsets import decode
from dgmark.documents.html_text import add_html
from dgmark.documents.markup import markup_pieces
from dgmark.documents.reading import Reading
from dgmark.documents.text_builder import TextBuilder

_NO_TEXT = ("text/css", "text/javascript")


def read_mail(content: bytes) -> Reading:
    """Read the page or else the text that an e-mail shows first, without the header.

    Raises:
        Refusal: the text is in no known character set, or most of the e-mail is not read.
    """
    message = message_from_bytes(content, policy=policy.default)
    body = message.get_body(("html", "plain")) or EmailMessage()
    builder, account = TextBuilder(), Account()
    beside = [part for parent in message.walk() if _is_related(parent) for part in parent.iter_parts()]
    for part in message.walk():
        kind, media = part.get_content_type(), part.get_content_maintype()
        if media == "text" and kind not in _NO_TEXT:
            place, text = part.get_filename() or kind, _decoded(part)
            account.held += markup_pieces(text, f"{place}, ") if "html" in kind else [Piece(place, text)]
        elif media not in ("text", "multipart", "message") and part not in beside:
            account.add("attachments", weight=Account.UNKNOWN)
    text, how = _decoded(body), list[str]()
    if "\ufffd" in text:
        text, how = decode(cast(bytes, body.get_payload(decode=True)))
    if body.get_content_subtype() == "html":
        add_html(builder, text, account)
    else:
        builder.add(text, exact=True)
    return account.reading(builder.text, how=tuple(how))


def _is_related(part: EmailMessage) -> bool:
    """Whether the page in a part counts what stands beside it, as it shows that."""
    return part.get_content_subtype() in ("alternative", "related")


def _decoded(part: Any) -> str:
    payload = cast(bytes, part.get_payload(decode=True) or b"")
    try:
        return payload.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:
        return payload.decode("utf-8", "replace")
