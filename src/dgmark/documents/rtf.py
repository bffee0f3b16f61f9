"""RTF to text, through striprtf. It passes over text boxes and notes, which are put behind the body for it."""

import re
from collections.abc import Iterator

from dgmark.documents.account import Account, Piece
from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.text_builder import TextBuilder, without_bullets

# striprtf writes "|" for the end of a table's cell; a paragraph instead keeps "|" for texts that hold it
_CELL = re.compile(r"(\\\\)|\\(?:nest)?cell(?![a-z])")
_BRACKET = re.compile(r"\\bin(\d+) ?|\\[\\{}]|\{\s*(?:\\\*)?\s*\\?([a-z]*)|\}")
_PICTURE_SIDE = re.compile(r"\\pic[wh]goal(\d+)")
_TWIPS = 20  # in a point
_READ = frozenset(("shptxt", "dptxbxtext", "footnote"))
# groups without text: tables of the file, data, field codes; the copy of a picture or shape for old readers
_NO_TEXT = frozenset((
    "fonttbl", "colortbl", "stylesheet", "listtable", "listoverridetable", "rsidtbl", "revtbl", "info", "generator",
    "xmlnstbl", "latentstyles", "themedata", "colorschememapping", "datastore", "datafield", "userprops", "docvar",
    "pict", "objdata", "fldinst", "bkmkstart", "bkmkend", "listname", "filetbl", "pgdsctbl", "sn",
))  # fmt: skip
_TOKEN = re.compile(
    r"\\bin(\d+) ?|\\u(-?\d+) ?(?:\\'..|[^\\{}])?|\\([a-z]+)-?\d* ?|\\'..|\\.|[{}]|([^\\{}]+)", re.DOTALL
)


def read_rtf(content: bytes) -> Reading:
    """Read an RTF file: its body, then text boxes and notes.

    Raises:
        Refusal: it is damaged, or most of it is not read.
    """
    from striprtf.striprtf import rtf_to_text

    source = content.decode("latin-1").rstrip("\0\r\n \t")
    if not source.endswith("}"):
        raise Refusal("is cut off: its last bracket is missing")
    account = Account()
    account.held += _pieces(source)
    source = source[:-1] + "".join(f"\\par {group}" for group in _beside(source, account)) + "}"
    source = _CELL.sub(lambda found: found[1] or "\\par ", source)
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except Exception as error:  # striprtf has no error of its own for damaged files
        raise Refusal(f"is damaged: {type(error).__name__}: {error}") from error
    builder = TextBuilder()
    for line in without_bullets(text).split("\n"):
        builder.add(line.strip(), exact=True)
        builder.end_line()
    return account.reading(builder.text, ascii_only=True)


def _beside(source: str, account: Account) -> Iterator[str]:
    """The groups that are read and stand beside the body; the others are counted."""
    opened: list[tuple[str, int]] = []
    at = 0
    while found := _BRACKET.search(source, at):
        at = found.end() + int(found[1] or 0)  # binary data holds no brackets
        if found[0].startswith("{"):
            opened.append((found[2], found.start()))
        elif found[0] == "}" and opened:
            word, start = opened.pop()
            if word in _READ:
                yield source[start:at].replace(f"\\{word}", "", 1)
            elif word == "object":
                account.add("embedded objects", weight=Account.UNKNOWN)
            elif word == "pict" and "nonshppict" not in (name for name, _ in opened):  # a copy for old readers
                sides = [int(side) / _TWIPS for side in _PICTURE_SIDE.findall(source[start:at])]
                account.add_picture(*(sides if len(sides) == 2 else (None, None)))


def _pieces(source: str) -> Iterator[Piece]:
    """The texts of all groups but for `_NO_TEXT`, in order; characters that their font encodes are left out."""
    opened: list[str] = []
    at, begins = 0, False
    while found := _TOKEN.match(source, at):
        at = found.end() + int(found[1] or 0)
        code, word, text = found[2], found[3], found[4]
        if found[0] == "{":
            opened.append(opened[-1] if opened else "rtf")
        elif found[0] == "}":
            opened = opened[:-1]
        elif word and begins and opened[-1] not in _NO_TEXT:
            opened[-1] = word
        elif (code or text) and opened and opened[-1] not in _NO_TEXT:
            shown = chr(int(code) % 2**16) if code else text.replace("\r", "").replace("\n", "")
            yield Piece(f"group {opened[-1]}", shown)
        begins = found[0] == "{" or (begins and found[0] == r"\*")
