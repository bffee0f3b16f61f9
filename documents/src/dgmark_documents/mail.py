"""E-mails (.eml, .emlx) and web archives (.mht, .webarchive) to text, with Python's `email`."""

import plistlib
import re
from collections.abc import Callable
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

from dgmark_documents.account import Account, Piece
from dgmark_documents.charsets import decode, decode_page
from dgmark_documents.html_text import add_html, is_page, page_pieces
from dgmark_documents.kinds import messages_of
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.text_builder import TextBuilder

_NO_TEXT = ("text/css", "text/javascript")
_HEADER = ("subject", "from", "to", "cc", "reply-to", "sender", "comments", "keywords", "organization")
_COUNT = re.compile(rb"(\d+)[ \t]*\r?\n")
_ADDRESS = re.compile(r"<[^<>]*>")
# the parts of a `multipart/alternative` in the order in which programs like to show them
_PREFERRED = ("text/html", "application/xhtml+xml", "multipart/related", "multipart/mixed", "text/plain")


def read_mail(content: bytes) -> Reading:
    """Read the page or else the text that an e-mail shows, then its further texts and what its header shows."""
    counted = _COUNT.match(content)  # Apple Mail puts the length first, and data of its own last
    content = content[counted.end() :][: int(counted[1])] if counted else content
    packed = content.startswith(b"bplist00")
    message = _web_archive(content) if packed else message_from_bytes(content, policy=policy.default)
    mail = _Mail(message)
    mail.read_header(message)
    mail.read(message)
    (_, body), *further = mail.texts or [("", "")]
    for place, text in further:
        mail.account.add_beside(place, text)
    return mail.account.reading(body, how=tuple(mail.how))


def read_mailbox(content: bytes) -> Reading:
    """Read the only message of a mailbox."""
    if len(messages := messages_of("", content)) > 1:
        raise Refusal(f"is a mailbox of {len(messages)} messages: save each as .eml, and give these")
    return read_mail(content)


class _Mail:
    """Reads the parts of an e-mail.

    Attributes:
        account: counts what is not read.
        texts: the texts of the parts that programs show and of those that are attached, in order, with their names.
        how: notes on how they were read.
    """

    def __init__(self, message: EmailMessage) -> None:
        self.account = Account()
        self.texts: list[tuple[str, str]] = []
        self.how: list[str] = []
        self._sheets: dict[str, str] = {}
        for part in message.walk():
            if part.get_content_type() == "text/css":
                name = str(part.get("Content-ID") or "").strip("<> ")
                text, _ = _decoded(part, lambda content: (content.decode("utf-8", "replace"), []))
                self._sheets |= {str(part.get("Content-Location") or ""): text, f"cid:{name}": text}

    def read(self, part: Any, *, shown: bool = True) -> None:
        """Read a part and those in it; what programs do not show is only counted."""
        kind, media = part.get_content_type(), part.get_content_maintype()
        if media == "message":
            self._message(part, shown)
        elif part.is_multipart():
            self._parts(part, shown)
        elif media in ("text", "multipart") or is_page(kind):  # a multipart without parts is a text
            if kind not in _NO_TEXT:
                self._text(part, kind, shown)
        else:
            self.account.add("attachments", weight=Account.UNKNOWN)

    def _message(self, part: Any, shown: bool) -> None:
        """Read a forwarded e-mail, or note one that stands elsewhere."""
        if part.get_content_type() in ("message/external-body", "message/partial"):
            self.account.add("parts stored elsewhere", weight=Account.UNKNOWN)
        elif part.is_multipart():
            for one in part.iter_parts():
                self.read_header(one)
                self.read(one, shown=shown)
        else:
            self._text(part, part.get_content_type(), shown)

    def _parts(self, part: Any, shown: bool) -> None:
        kind, parts = part.get_content_type(), list(part.iter_parts())
        for place, text in (("preamble", part.preamble), ("epilogue", part.epilogue)):
            self.account.held += [Piece(place, text, "labels")] if text and text.strip() else []
        first = parts[0] if parts else None
        if kind == "multipart/alternative":
            first = min(parts, key=_preference, default=None)
        for one in parts:
            if kind in ("multipart/alternative", "multipart/related") and one is not first:
                self._beside(one, related=kind.endswith("related"))
            else:
                self.read(one, shown=shown)  # e-mails and texts also where they are attached

    def _beside(self, part: Any, *, related: bool) -> None:
        """Count a part that is shown in place of another, or within it."""
        media = part.get_content_maintype()
        seen = related and media in ("image", "font", "audio", "video") and not is_page(part.get_content_type())
        if not seen:  # the page counts the pictures that it shows
            self.read(part, shown=False)

    def _text(self, part: Any, kind: str, shown: bool) -> None:
        place, page = part.get_filename() or kind, is_page(kind)
        try:
            text, how = _decoded(part, decode_page if page else decode)
        except Refusal:
            if shown and not self.texts:
                raise
            self.account.add("attachments", weight=Account.UNKNOWN)
            return
        self.how += how if shown else []
        marked = page or kind in ("text/enriched", "text/richtext")
        self.account.held += page_pieces(text, place) if marked else [Piece(place, text)]
        if not shown:
            return
        builder = TextBuilder()
        if marked:
            add_html(builder, text, self.account, open_file=self._sheets.get)
        else:
            builder.add(text, exact=True)
        if builder.text.strip():
            self.texts.append((part.get_filename() or "further parts", builder.text))

    def read_header(self, message: Any) -> None:
        """Read what programs show of a header: the subject, names, and remarks."""
        for name in _HEADER:
            for value in message.get_all(name, []):
                words = _ADDRESS.sub(" ", str(value)).split()
                text = " ".join(word for word in words if "@" not in word).strip(" \"'")
                self.account.held.append(Piece(f"header {name}", text, "labels"))
                self.account.add_beside("header", text)


def _web_archive(content: bytes) -> EmailMessage:
    """An archive of Safari, which is a property list, as the message that other browsers write."""
    message = EmailMessage()
    message.make_related()
    try:
        archive = plistlib.loads(content)
        for one in (archive["WebMainResource"], *archive.get("WebSubresources", ())):
            kind, _, subtype = (one.get("WebResourceMIMEType") or "application/octet-stream").partition("/")
            part, code = EmailMessage(), one.get("WebResourceTextEncodingName")
            part.set_content(one["WebResourceData"], kind, subtype, params={"charset": code} if code else {})
            part["Content-Location"] = one["WebResourceURL"]
            message.attach(part)
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(f"is no web archive of Safari, or is damaged: {error}") from error
    return message


def _preference(part: Any) -> int:
    kind = part.get_content_type()
    return _PREFERRED.index(kind) if kind in _PREFERRED else len(_PREFERRED)


def _decoded(part: Any, guess: Callable[[bytes], tuple[str, list[str]]] = decode) -> tuple[str, list[str]]:
    """The text of a part, with notes on how it was read; a guess if it is not in the character set that it states."""
    payload = cast(bytes, part.get_payload(decode=True) or b"")
    if not payload and part.get_content_maintype() in ("multipart", "message") and not part.is_multipart():
        payload = str(part.get_payload()).encode("utf-8", "replace")
    try:
        return payload.decode(part.get_content_charset() or "utf-8"), []
    except (LookupError, ValueError):
        return guess(payload)
