"""RTF to text: its body, then what stands apart from it, each once.

What RTF hides is read behind the body, and what cannot be seen for its look is read and counted. Each sign of the file
is looked at once to read it and once to count it.
"""

import re
from collections.abc import Iterator
from copy import copy
from typing import Any

from dgmark_documents.account import HIDDEN, Account, Piece
from dgmark_documents.fields import button_of, shows_property
from dgmark_documents.look import unseen
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.rtf_state import SIGNS, Font, State, encoding_of
from dgmark_documents.text_builder import TextBuilder, without_bullets

# a control word with its number, a byte in hexadecimal, a control sign, a bracket, text
_TOKEN = re.compile(
    r"\\([A-Za-z]{1,40})(-?[0-9]{1,10})?[ ]?|\\'([0-9A-Fa-f]{2})|\\(.)|([{}])|([^\\{}\r\n]+)|[\r\n]+|\\", re.DOTALL
)
_TWIPS = 20  # in a point
# where the text of a destination goes, if it is not the body
_APART = {
    **dict.fromkeys(("header", "headerr", "headerl", "headerf"), "headers"),
    **dict.fromkeys(("footer", "footerr", "footerl", "footerf"), "footers"),
    **dict.fromkeys(("ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn"), "separators of notes"),
    **dict.fromkeys(("shptxt", "dptxbxtext"), "text boxes"), "footnote": "footnotes", "annotation": "comments",
    **dict.fromkeys(("ffdeftext", "ffhelptext", "ffstattext"), "form fields"), "ffl": "choices of lists",
    **dict.fromkeys(("atnid", "atnauthor"), "authors of comments"),
}  # fmt: skip
# destinations that hold others but no text of their own
_HOLDERS = frozenset(("shpinst", "do", "sp", "formfield", "background", "upr"))
# known destinations that other readers are told to pass over
_KNOWN = frozenset(("ud", "shppict", "moMath", "moMathPara", "mmath", "fldinst", *_APART, *_HOLDERS))
# destinations without text: tables of the file, data, names, entries of indexes, numbers that stand elsewhere too
_NO_TEXT = frozenset((
    "fonttbl", "colortbl", "stylesheet", "listtable", "listoverridetable", "rsidtbl", "revtbl", "info", "generator",
    "xmlnstbl", "latentstyles", "themedata", "colorschememapping", "datastore", "datafield", "userprops", "docvar",
    "pict", "objdata", "objclass", "objname", "fldinst", "bkmkstart", "bkmkend", "listname", "filetbl", "pgdsctbl",
    "sn", "xe", "tc", "tcn", "rxe", "atnref", "atntime", "atndate", "atrfstart", "atrfend", "atnparent",
    "htmltag", "mhtmltag", "pn", "pnseclvl", "listtext", "pntext", "ffname",
    "wgrffmtfilter", "mmathPr", "nesttableprops", "template", "passwordhash", "ffentrymcr", "ffexitmcr", "fontemb",
))  # fmt: skip
_VALUES = {"sv": "values of shapes"}  # destinations of which a little may go unread
_COPIES = frozenset(("nonshppict", "shprslt", "mmathPict"))  # for old readers
# the texts around the numbers of a list's level, and numbers as they are shown
_OF_LISTS = frozenset(("leveltext", "pntxta", "pntxtb", "listtext", "pntext"))
_PROPERTIES = frozenset(("title", "subject", "author", "keywords", "doccomm", "operator"))
_KEPT = frozenset(("sn", "sv", *_OF_LISTS, *_PROPERTIES))
_SIGNS = {
    **dict.fromkeys(("par", "line", "sect", "page", "column", "row", "cell", "nestcell", "nestrow", "softline"), "\n"),
    **dict.fromkeys(("lbr", "\n", "\r"), "\n"),
    **dict.fromkeys(("tab", "~", "emspace", "enspace", "qmspace"), " "),
    "emdash": "\u2014", "endash": "\u2013", "bullet": "\u2022", "lquote": "\u2018", "rquote": "\u2019",
    "ldblquote": "\u201c", "rdblquote": "\u201d", "zwj": "\u200d", "zwnj": "\u200c", "_": "-", "\\": "\\",
    "{": "{", "}": "}",
}  # fmt: skip
_PRIMARIES = ("red", "green", "blue")
_CODE_PAGES = {"mac": 10000, "pc": 437, "pca": 850}
_OF_SHAPES = {"gtextUNICODE": "drawn texts", "wzDescription": "alternative texts", "wzTooltip": "tool tips"}
_CONTROL = re.compile(r"[\0-\x1f]|\d+")


def read_rtf(content: bytes) -> Reading:
    """Read an RTF file; headers, footers, notes, comments, text boxes and the like stand after the body."""
    source = content.decode("latin-1").rstrip("\0\r\n \t")
    if not source.endswith("}"):
        raise Refusal("is cut off: its last bracket is missing")
    reader = _Reader()
    reader.read(source)
    reader.account.held += _pieces(source, reader.deleted)
    body, *apart = reader.texts()
    for place, text in apart:
        reader.account.add_beside(place, text)
    return reader.account.reading(body[1], ascii_only=True)


def _tokens(source: str) -> Iterator[tuple[Any, ...]]:
    """The tokens of a file without its binary data: the place of each, then the groups of `_TOKEN`."""
    at = 0
    while found := _TOKEN.match(source, at):
        if found[1] == "bin":
            at = found.end() + max(int(found[2] or 0), 0)
        else:
            yield at, *found.groups()
            at = found.end()


class _Reader:
    """Reads a file, token by token.

    Attributes:
        account: what is not read, or read although it is not seen.
        deleted: where texts stand that are tracked deletions.
    """

    def __init__(self) -> None:
        self.account = Account()
        self.deleted: set[int] = set()
        self._texts: dict[str, list[str]] = {"body": []}
        self._stack: list[State] = []
        self._state = State()
        self._begins = self._ignorable = False  # of the group that begins: no word yet; may be passed over
        self._bytes = bytearray()  # of which characters are made together
        self._passing = 0  # characters to pass over, which stand for a `\\u` in old readers
        self._encoding = "cp1252"
        self._fonts: dict[int, Font] = {}
        self._colours = list[str]()
        self._parts: dict[str, int] = {}  # of the colour that is read, as far as it states them
        self._shaded = False  # whether cells of the row have a colour of their own
        self._codes: list[list[str]] = []  # of the fields that are open
        self._shows_properties = False  # of the document, by a field
        self._kept: list[str] = []  # the text of a group that is looked at when it ends
        self._shape_property = ""
        self._properties: list[str] = []  # of the document
        self._labels: list[str] = []  # of lists
        self._picture: dict[str, int] = {}

    def read(self, source: str) -> None:
        """Read a file up to the bracket that ends it."""
        for start, word, number, code, sign, bracket, text in _tokens(source):
            if text:
                self._add_bytes(text.encode("latin-1"), start)
            elif word:
                self._take_word(word, None if number is None else int(number), start)
            elif code:
                self._add_bytes(bytes((int(code, 16),)), start)
            elif sign:
                self._take_sign(sign, start)
            elif bracket:
                self._flush()
                self._passing = 0
                if bracket == "{":
                    self._stack.append(self._state)
                    self._state = copy(self._state)
                    self._state.word, self._begins, self._ignorable = "", True, False
                elif self._stack:
                    self._end_group()
                    self._state = self._stack.pop()
                    if not self._stack:
                        break
        self._flush()

    def texts(self) -> list[tuple[str, str]]:
        """The body, then what stands apart from it, each with its place."""
        self._put("numbers of lists", " ".join(self._labels))
        self._put("document properties", " ".join(self._properties) if self._shows_properties else "")
        return [(place, _lines("".join(parts))) for place, parts in self._texts.items()]

    def _take_word(self, word: str, number: int | None, start: int) -> None:
        if word == "u" and number is not None:
            self._flush()
            self._emit(chr(number % 2**16), start)
            self._passing = self._state.skip
            return
        if word in _SIGNS:
            self._take_sign(word, start)
            return
        self._flush()
        if self._begins:
            self._begin_group(word)
        state = self._state
        state.take(word, number)
        if word in ("deleted", "mvf") and state.deleted:
            self.account.add("tracked deletions")
        elif word == "ansicpg":
            self._encoding = encoding_of(number or 1252)
        elif word in _CODE_PAGES:
            self._encoding = encoding_of(_CODE_PAGES[word])
        elif word in ("trowd", "clcbpat"):
            self._shaded = word == "clcbpat" and bool(number)
        elif word in _PRIMARIES and state.table == "colortbl":
            self._parts[word] = min(max(number or 0, 0), 255)
        elif word in ("fcharset", "cpg") and state.table == "fonttbl":
            font = self._fonts.setdefault(state.font, Font())
            font.charset, font.code_page = (number, font.code_page) if word == "fcharset" else (font.charset, number)
        elif word.startswith("pic") and number is not None:
            self._picture[word] = number

    def _take_sign(self, sign: str, start: int) -> None:
        if sign == "*":
            self._ignorable = True
        elif sign in _SIGNS:
            self._begins = False
            if self._passing:
                self._passing -= 1
                return
            self._flush()
            self._emit(_SIGNS[sign], start)

    def _begin_group(self, word: str) -> None:
        """Take the first word of a group, which says what the group is."""
        self._begins = False
        state = self._state
        state.word = word
        state.is_copy = state.is_copy or word in _COPIES
        if word == "pict":
            self._picture = {}
        elif word == "object" and not state.closed:
            self.account.add("embedded objects", weight=Account.UNKNOWN)
        if word in _KEPT and (not state.closed or state.table == "info" or word in _OF_LISTS):
            self._kept, state.place = [], "kept"
        elif state.closed:
            return
        elif word == "fldinst":
            self._codes.append([])
            state.place = "code"
        elif word in ("fonttbl", "colortbl", "info"):
            state.table, state.place, state.closed = word, "", True
        elif word == "ud":
            state.place = state.outer_place
        elif word in _APART:
            state.place = _APART[word]
            self._texts.setdefault(state.place, []).append("\n")
        elif word in _HOLDERS:
            state.outer_place, state.place = state.place, ""
        elif word in _NO_TEXT or word in _COPIES or (self._ignorable and word not in _KNOWN):
            state.place, state.closed = "", True

    def _end_group(self) -> None:
        state = self._state
        if state.word == "fldinst" and state.place == "code":
            code = "".join(self._codes.pop())
            self._put("buttons", button_of(code))
            self._shows_properties = self._shows_properties or shows_property(code)
        elif state.word == "pict" and not state.is_copy:
            self.account.add_picture(self._side("w"), self._side("h"))
        elif state.place == "kept" and state.word in _KEPT:
            self._take_kept(state.word, "".join(self._kept).strip())

    def _side(self, side: str) -> float | None:
        goal = self._picture.get(f"pic{side}goal")
        scale = self._picture.get("picscalex" if side == "w" else "picscaley", 100)
        return None if goal is None else goal * scale / 100 / _TWIPS

    def _take_kept(self, word: str, text: str) -> None:
        if word == "sn":
            self._shape_property = text
        elif word == "sv":
            if self._shape_property in _OF_SHAPES:
                self._put(_OF_SHAPES[self._shape_property], text)
            elif self._shape_property == "fHidden" and text == "1" and len(self._stack) > 1:
                self._stack[-2].gone = True
        elif word in _OF_LISTS:
            label = _CONTROL.sub("", text).removesuffix(";").strip()
            if any(map(str.isalpha, label)) and self._labels[-1:] != [label]:
                self._labels.append(label)
        else:
            self._properties.append(text)

    def _put(self, place: str, text: str) -> None:
        if text:
            self._texts.setdefault(place, []).append(f"\n{text}")

    def _add_bytes(self, content: bytes, start: int) -> None:
        self._begins = False
        if self._passing:
            passed = min(self._passing, len(content))
            self._passing -= passed
            content = content[passed:]
        state = self._state
        if state.table == "fonttbl" and state.word in ("f", "fonttbl"):
            self._fonts.setdefault(state.font, Font()).name += content.decode("latin-1")
        elif state.table == "colortbl":
            for _ in range(content.count(b";")):
                self._colours.append(bytes(self._parts.get(one, 0) for one in _PRIMARIES).hex() if self._parts else "")
                self._parts = {}
        elif self._is_shown(content.decode("latin-1"), start):
            self._bytes += content

    def _is_shown(self, text: str, start: int) -> bool:
        """Whether a text is read here; counts it if it is but cannot be seen."""
        state = self._state
        if state.deleted:
            self.deleted.add(start)
            return False
        if state.place in ("", "kept", "code"):
            return bool(state.place)
        why = unseen(state.look(self._colours, shaded=self._shaded))
        if why not in (None, HIDDEN) and text.strip():
            self.account.add_not_shown(why or "", text)
        return True

    def _emit(self, text: str, start: int) -> None:
        if self._is_shown(text, start):
            self._write(text)

    def _flush(self) -> None:
        """Decode the bytes that stand together."""
        if self._bytes:
            content, self._bytes = bytes(self._bytes), bytearray()
            font = self._fonts.get(self._state.font)
            encoding = font.encoding(self._encoding) if font else self._encoding
            if encoding == SIGNS:
                self._write("".join(chr(0xF000 + one) if one > ord(" ") else chr(one) for one in content))
            else:
                self._write(content.decode(encoding, "replace"))

    def _write(self, text: str) -> None:
        state, place = self._state, self._state.place
        if place == "kept":
            self._kept.append(text)
        elif place == "code":
            if self._codes:
                self._codes[-1].append(text)
        elif state.hidden or state.gone:
            self._texts.setdefault(HIDDEN, []).append(f"{text} ")
        else:
            self._texts.setdefault(place, []).append(text)


def _lines(text: str) -> str:
    """A text without bullets and without white space at the ends of its lines; halves of characters are joined."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    builder = TextBuilder()
    for line in without_bullets(whole).split("\n"):
        builder.add(line.strip(), exact=True)
        builder.end_line()
    return builder.text


def _pieces(source: str, deleted: set[int]) -> Iterator[Piece]:
    """The texts of all groups but for `_NO_TEXT` and tracked deletions, in order; fonts encode other letters."""
    opened = ["the end"]  # what stands outside of all groups
    begins = False
    for start, word, number, code, sign, bracket, text in _tokens(source):
        if bracket == "{":
            opened.append(opened[-1] if len(opened) > 1 else "rtf")
        elif bracket:
            del opened[max(len(opened) - 1, 1) :]
        elif opened[-1] not in _NO_TEXT and start not in deleted:
            if word == "u" and number:
                text = chr(int(number) % 2**16)
            elif code:
                text = chr(int(code, 16))
            elif word and begins:
                opened[-1] = word
            if text:
                yield Piece(f"group {opened[-1]}", text, _VALUES.get(opened[-1]))
        begins = bracket == "{" or (begins and (sign == "*" or not (word or code or sign or bracket or text)))
