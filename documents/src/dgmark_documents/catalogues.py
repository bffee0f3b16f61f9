"""Catalogues of messages (.po, .pot) to text: the translations, or the messages where there are none."""

import re
from collections.abc import Iterator

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode
from dgmark_documents.reading import Reading, Refusal

_FIELD = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(".*")')
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)")
_NAMED = {"n": "\n", "t": "\t", "r": "", "a": "", "b": "", "f": "\n", "v": "\n"}
_COMMENT = re.compile(r"#(?:\.|\s)\s*(.*)")
Entry = dict[str, str]


def read_catalogue(content: bytes) -> Reading:
    """Read the translations of a catalogue, each on lines of its own, and messages that are not translated.

    The messages that are translated, obsolete entries, comments and the header are read behind them.

    Raises:
        Refusal: it is no catalogue.
    """
    text, how = decode(content)
    account = Account()
    lines = text.split("\n")
    current = list(_entries(line for line in lines if not line.startswith("#")))
    if not current:
        raise Refusal("is no catalogue of messages: it has no msgid. If it is plain text, name it .txt")
    obsolete = list(_entries(line[2:].strip() for line in lines if line.startswith("#~")))
    body, originals, headers = [], [], []
    for entry in current:
        translations = [value for name, value in entry.items() if name.startswith("msgstr") and value]
        messages = [entry[name] for name in ("msgid", "msgid_plural") if entry.get(name)]
        if messages:
            body += translations or messages
            originals += messages if translations else []
        else:
            headers += translations
    account.add_beside("messages in the original", "\n".join(originals))
    account.add_beside("headers", "\n".join(headers))
    account.add_beside("obsolete entries", "\n".join(value for entry in obsolete for value in entry.values()))
    comments = filter(None, map(_COMMENT.match, lines))
    account.add_beside("comments", "\n".join(found[1] for found in comments))
    return account.reading("\n".join(body), how=tuple(how))


def _entries(lines: Iterator[str]) -> Iterator[Entry]:
    """The entries, each with its fields: msgid, msgstr and so on; strings on lines that follow belong to a field."""
    entry: Entry = {}
    name = ""
    for line in lines:
        found = _FIELD.match(line.strip())
        if found:
            if found[1] == "msgctxt" or (found[1] == "msgid" and "msgid" in entry):
                if "msgid" in entry:
                    yield entry
                entry = {}
            name = found[1]
            entry[name] = _unescaped(found[2])
        elif name and line.lstrip().startswith('"'):
            entry[name] += _unescaped(line)
    if "msgid" in entry:
        yield entry


def _unescaped(quoted: str) -> str:
    return _ESCAPE.sub(_meant, quoted.strip()[1:-1])


def _meant(found: re.Match[str]) -> str:
    sign = found[1]
    if sign[0] == "x" and len(sign) > 1:
        return chr(int(sign[1:], 16))
    return chr(int(sign, 8)) if sign[0] in "01234567" else _NAMED.get(sign, sign)
