"""RTF to text, through striprtf. It passes over text boxes and notes, which are put behind the body for it."""

import re
from collections.abc import Iterator

from dgmark.documents.reading import Reading, Refusal, Unread
from dgmark.documents.text_builder import TextBuilder, without_bullets

# striprtf writes "|" for the end of a table's cell; a paragraph instead keeps "|" for texts that hold it
_CELL = re.compile(r"(\\\\)|\\(?:nest)?cell(?![a-z])")
_BRACKET = re.compile(r"\\bin(\d+) ?|\\[\\{}]|\{\s*(?:\\\*)?\s*\\?([a-z]*)|\}")
_CONTROL = re.compile(r"\\[a-z]+-?\d* ?|\\'|[{}\r\n]")
_PICTURE_SIDE = re.compile(r"\\pic[wh]goal(\d+)")
_TWIPS = 20  # in a point
_READ = frozenset(("shptxt", "dptxbxtext", "footnote"))
_COUNTED = {name + pages: "headers and footers" for name in ("header", "footer") for pages in ("", "l", "r", "f")}
_COUNTED["annotation"] = "comments"


def read_rtf(content: bytes) -> Reading:
    """Read an RTF file: its body, then text boxes and notes.

    Raises:
        Refusal: it is damaged, or most of it is not read.
    """
    from striprtf.striprtf import rtf_to_text

    source = content.decode("latin-1").rstrip("\0\r\n \t")
    if not source.endswith("}"):
        raise Refusal("is cut off: its last bracket is missing")
    unread = Unread()
    source = source[:-1] + "".join(f"\\par {group}" for group in _beside(source, unread)) + "}"
    source = _CELL.sub(lambda found: found[1] or "\\par ", source)
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except Exception as error:  # striprtf has no error of its own for damaged files
        raise Refusal(f"is damaged: {type(error).__name__}: {error}") from error
    builder = TextBuilder()
    for line in without_bullets(text).split("\n"):
        builder.add(line.strip(), exact=True)
        builder.end_line()
    return unread.reading(builder.text)


def _beside(source: str, unread: Unread) -> Iterator[str]:
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
            elif word in _COUNTED:
                unread.add_text(_COUNTED[word], _CONTROL.sub("", source[start:at]))
            elif word == "object":
                unread.add("embedded objects", weight=Unread.UNKNOWN)
            elif word == "pict" and "nonshppict" not in (name for name, _ in opened):  # a copy for old readers
                sides = [int(side) / _TWIPS for side in _PICTURE_SIDE.findall(source[start:at])]
                unread.add_picture(*(sides if len(sides) == 2 else (None, None)))
