"""E-mails (.eml) and web archives (.mht) to text, with Python's `email`."""

from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import cast

from dgmark.documents.charsets import decode
from dgmark.documents.html_text import add_html
from dgmark.documents.reading import Reading, Unread
from dgmark.documents.text_builder import TextBuilder


def read_mail(content: bytes) -> Reading:
    """Read the page or else the text that an e-mail shows first, without the header.

    Raises:
        Refusal: the text is in no known character set, or most of the e-mail is not read.
    """
    message = message_from_bytes(content, policy=policy.default)
    body = message.get_body(("html", "plain")) or EmailMessage()
    builder, unread = TextBuilder(), Unread()
    for parent in message.walk():
        # one of the alternatives is read; of what stands beside a page, the page counts what it shows
        beside = parent.get_content_subtype() in ("alternative", "related")
        for part in parent.iter_parts() if parent.is_multipart() else ():
            if part is not body and not part.is_multipart() and (part.is_attachment() or not beside):
                unread.add("attachments", weight=Unread.UNKNOWN)
    payload = cast(bytes, body.get_payload(decode=True) or b"")
    how: list[str] = []
    try:
        text = payload.decode(body.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        text, how = decode(payload)
    if body.get_content_subtype() == "html":
        add_html(builder, text.encode(), unread, encoding="utf-8")
    else:
        builder.add(text, exact=True)
    return unread.reading(builder.text, how=tuple(how))
