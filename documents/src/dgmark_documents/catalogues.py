"""Catalogues of messages (.po, .pot) to text: the translations, or the messages where there are none."""

import polib

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode
from dgmark_documents.reading import Reading, Refusal


def read_catalogue(content: bytes) -> Reading:
    """Read the translations of a catalogue, each on lines of its own, and messages that are not translated.

    The messages that are translated, obsolete entries, comments and the header are read behind them.
    """
    text, how = decode(content)
    account, body = Account(), list[str]()
    try:
        catalogue = polib.pofile(f"{text}\n")  # which takes a text of one line for a path
    except (OSError, ValueError) as error:
        raise Refusal(f"is no catalogue of messages: {error}. If it is plain text, name it .txt") from error
    if "msgid" not in text:
        raise Refusal("is no catalogue of messages: it has no msgid. If it is plain text, name it .txt")
    for entry in catalogue:
        messages = [one for one in (entry.msgid, entry.msgid_plural) if one]
        translations = [one for one in (entry.msgstr, *entry.msgstr_plural.values()) if one]
        if entry.obsolete:
            account.put("obsolete entries", "\n".join((*messages, *translations)))
            continue
        body += translations or messages
        account.put("messages in the original", "\n".join(messages) if translations else "")
        account.put("comments", "\n".join(filter(None, (entry.tcomment, entry.comment))))
    account.put("headers", "\n".join((catalogue.header, *catalogue.metadata.values())))
    return account.reading("\n".join(body), how=tuple(how))
