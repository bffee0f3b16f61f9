"""`TextBuilder`: pieces of text in reading order to lines, with white space, line ends and paragraphs."""

import re

# spaces that end no line and those of other widths read as a space
_WIDE = re.compile("[\u00a0\u2000-\u200a\u202f\u205f]")
_SPACE = re.compile("[ \t\n\r\f\u00a0\u2000-\u200a\u202f\u205f]+")
_BULLET = re.compile("^[ \t]*[\uf000-\uf0ff•◦▪‣·][ \t]+", re.MULTILINE)


def without_bullets(text: str) -> str:
    """The text without the bullets of lists, which are no text in other kinds of documents."""
    return _BULLET.sub("", text)


class TextBuilder:
    """Text that grows piece by piece; `text` is the result."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._gap = 0  # line ends that the next text must stand behind
        self._at_start = True  # whether white space would begin a line
        self._space = False  # whether the next text stands behind a space
        self._room = False  # whether the next word stands apart from the last one

    def add(self, piece: str | None, *, exact: bool = False) -> None:
        """Add text.

        Args:
            piece: the text.
            exact: keep its white space; otherwise each run of it counts as one space, and none begins or ends a line.
        """
        if not piece:
            return
        if exact:
            self._put(_WIDE.sub(" ", piece))
            return
        words = _SPACE.sub(" ", piece)
        body = words.strip(" ")
        if words[0] == " ":
            self._space = not self._at_start or self._space
        if body:
            self._put(body)
            self._space = words[-1] == " "

    def room(self) -> None:
        """What follows stands a little apart: a word that would follow upon another has a space before it."""
        self._room = True

    def end_line(self) -> None:
        """End the line, also if it is empty."""
        self._put("\n")
        self._at_start = True

    def block(self, lines: int = 1) -> None:
        """What follows stands on a line of its own: at least `lines` line ends behind what is there."""
        if self._parts:
            self._gap = max(self._gap, lines)
        self._space = False
        self._at_start = True

    @property
    def text(self) -> str:
        """All of the text, without line ends at its ends and without soft hyphens."""
        return "".join(self._parts).replace("\u00ad", "").strip("\n")

    def _put(self, piece: str) -> None:
        words = bool(self._parts) and self._parts[-1][-1:].isalpha() and piece[:1].isalpha()
        spaced = self._space and not self._at_start and piece != "\n"
        if self._gap:
            self._parts.append("\n" * self._gap)
        elif spaced or (self._room and words):
            self._parts.append(" ")
        self._gap, self._space, self._room, self._at_start = 0, False, False, False
        self._parts.append(piece)
