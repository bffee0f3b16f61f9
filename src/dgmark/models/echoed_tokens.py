"""The characters of the tokens of a prompt, as servers show them when they echo it.

Servers agree on little: a token that holds a part of a character is shown as U+FFFD, as nothing (and the whole
character with its last part, or never), as its bytes, or as its bytes in Latin-1; others show tokens as they stand in
the vocabulary, or leave out the space before a word. What holds for all is that the tokens follow each other and add up
to the text. So each token is looked for where the one before it ends, and those that show nothing share what is left
between the others, if that may be as long. Knows no server.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from dgmark.checkpoint.byte_bpe import BYTE_OF_LETTER

_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")
_FALLBACK = re.compile("<0x([0-9A-Fa-f]{2})>")
_UNKNOWN, _WORD_SIGN = "\ufffd", "\u2581"
# bytes of a character of which a token that shows none has a part
_PART = 3
# places that are tried beyond one for each token
_MOST_TRIES = 20_000

Place = tuple[int, int]


def placed(text: str, shown: Sequence[str | bytes]) -> list[Place] | None:
    """The characters [start, end) of each token, up to the end of the text; None if the text does not consist of them.

    A begin token stands at the start and in no character; tokens that are parts of a character share it. Tokens are
    bytes where the server gives those; it may have added some, and its tokenizer may have composed the text's
    characters (Unicode's NFC).
    """
    places = _Placing(text).places(shown)
    if places is None and not unicodedata.is_normalized("NFC", text):
        composed, origins = _composed(text)
        places = _Placing(composed).places(shown)
        origins.append((len(text), len(text)))
        return places and [
            (origins[start][0], origins[end - 1][1] if end > start else origins[start][0]) for start, end in places
        ]
    return places


class _Placing:
    """Looks for tokens in the bytes of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._bytes, self._shows_unknown = text.encode(), _UNKNOWN in text
        self._character = [number for number, sign in enumerate(text) for _ in sign.encode()] + [len(text)]

    def places(self, shown: Sequence[str | bytes]) -> list[Place] | None:
        """See `placed`. A token after some that show nothing may be found too early: then later places are tried."""
        spans, number, at, begin = list[Place](), 0, 0, 0
        found_behind = list[tuple[int, int, int, int]]()
        for _ in range(len(shown) + _MOST_TRIES):
            waiting = shown[len(spans) : number]
            if at == len(self._bytes) or number == len(shown):
                found = None
            elif self._shows_nothing(shown[number]):
                number += 1
                continue
            else:
                found = self._find(shown[number], at, waiting, begin)
            if found is not None:
                if waiting:
                    found_behind.append((len(spans), number, at, found[0] + 1))
                spans += [self._shared(at, *found)] * len(waiting)
                spans.append((found[0] if waiting else at, found[1]))
                number, at, begin = number + 1, found[1], 0
            elif number < len(shown) and at < len(self._bytes) and _UNKNOWN in str(shown[number]):
                number, begin = number + 1, 0  # a text that holds the sign itself may have parts of characters, too
            elif at == len(self._bytes):
                return [self._characters(*span) for span in spans]
            elif waiting and number >= len(shown) - 1 and _may_be(waiting, self._bytes[at:]):
                spans += [(at, len(self._bytes))] * len(waiting)
                at = len(self._bytes)
            elif at == 0 and not waiting and number < len(shown):
                spans.append((0, 0))
                number += 1
            elif found_behind:
                kept, number, at, begin = found_behind.pop()
                del spans[kept:]
            else:
                return None
        return None

    def _shows_nothing(self, token: str | bytes) -> bool:
        return not token or (isinstance(token, str) and _UNKNOWN in token and not self._shows_unknown)

    def _find(self, token: str | bytes, at: int, waiting: Sequence[str | bytes], begin: int) -> Place | None:
        """The bytes of a token from `begin` on, after those of the tokens since `at` that show nothing; None if it is
        not there.
        """
        for start in self._starts(at, waiting):
            if start >= begin:
                for form in _forms(token, first=start == 0):
                    if self._bytes.startswith(form, start):
                        return start, start + len(form)
        return None

    def _starts(self, at: int, waiting: Sequence[str | bytes]) -> Iterator[int]:
        """Where a token may start. White space in front of it may be missing in what is shown."""
        least, most = _bounds(waiting)
        start, solid = at, 0
        while start <= len(self._bytes) and solid <= most:
            if start - at >= least:
                yield start
            solid += not self._bytes[start : start + 1].isspace()
            start += 1

    def _shared(self, at: int, start: int, end: int) -> Place:
        """The bytes that tokens share which show nothing, before a token at [start, end)."""
        if start > at:
            return at, start
        if not self._bytes[start:end].isascii():  # it shows what they are parts of
            return start, end
        return (at - 1, at) if self._bytes[at - 1 : at] >= b"\x80" else (at, at)

    def _characters(self, start: int, end: int) -> Place:
        first = self._character[start]
        return first, self._character[end - 1] + 1 if end > start else first


def _bounds(waiting: Sequence[str | bytes]) -> Place:
    """How many bytes tokens that show nothing have at least, and at most."""
    least = most = 0
    for token in map(str, waiting):
        parts, rest = token.count(_UNKNOWN), len(token.replace(_UNKNOWN, "").encode())
        least, most = least + parts + rest, most + _PART * max(parts, 1) + rest
    return least, most


def _may_be(waiting: Sequence[str | bytes], content: bytes) -> bool:
    least, most = _bounds(waiting)
    return least <= len(content) and len(b"".join(content.split())) <= most


def _forms(token: str | bytes, *, first: bool) -> Iterator[bytes]:
    """The bytes that a token may stand for, the likeliest ones first."""
    if isinstance(token, bytes):
        yield token
        return
    yield token.encode("utf-8", "surrogatepass")
    if token.startswith("bytes:") or "\\x" in token:
        yield _ESCAPED.sub(lambda escape: bytes([int(escape[1], 16)]), token.removeprefix("bytes:").encode())
    if fallback := _FALLBACK.fullmatch(token):
        yield bytes([int(fallback[1], 16)])
    if not token.isascii():
        if max(token) <= "\xff":
            yield token.encode("latin-1")
        if all(letter in BYTE_OF_LETTER for letter in token):
            yield bytes(BYTE_OF_LETTER[letter] for letter in token)
        yield token.replace(_WORD_SIGN, " ").encode("utf-8", "surrogatepass")
    if first and (word := token.lstrip(f" {_WORD_SIGN}")):
        yield word.encode("utf-8", "surrogatepass")


def _composed(text: str) -> tuple[str, list[Place]]:
    """The text in Unicode's composed form, and the characters of the text that each of its characters stands for."""
    begins = [
        at for at, sign in enumerate(text) if not unicodedata.combining(sign) and not "\u1160" <= sign <= "\u11ff"
    ]
    pieces, origins = list[str](), list[Place]()
    for begin, end in zip([0, *begins], [*begins, len(text)], strict=True):
        piece = unicodedata.normalize("NFC", text[begin:end])
        pieces.append(piece)
        same = piece == text[begin:end]
        origins += [(begin + number, begin + number + 1) if same else (begin, end) for number in range(len(piece))]
    return "".join(pieces), origins
