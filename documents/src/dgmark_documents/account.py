"""`Account`: what a document holds beside the text of its body, and what that means for a verdict on the text.

A reader tells the account all that the file holds, what of it is read behind the body, what is left out, and what is
read although the file does not show it. The account compares letters, and knows no kind of document.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from dgmark_documents.reading import PAGE_CHARS, Reading, Refusal
from dgmark_documents.text_builder import TextBuilder

_PAGE_AREA = 595.0 * 842  # of a page of A4, in square points
_SHOWN = 10  # notes that an error lists
HIDDEN = "hidden text"
_PLURAL = re.compile(r"s\b")
_DATA = re.compile(r"[a-z]+://\S+|[!-~]{60,}")  # addresses and encoded data
_NO_LETTERS, _NO_ASCII_LETTERS = re.compile(r"[\W\d_]+"), re.compile("[^A-Za-z]+")
# letters that must agree to count as read, and of the blocks by which such places are found
_AGREE, _BLOCK = 16, 8
# what no reader of a document sees: it is named, and does not count as left out
_UNSEEN = ("scripts", "external style sheets", "tracked deletions", "comments")
_FEWEST = 3  # letters of a text that can be read by itself


class Piece(NamedTuple):
    """A text of a file.

    Attributes:
        place: where it stands, such as "element p"; notes name it.
        text: the text.
        group: of a text that may go unread if there is little of its kind, the name of that kind, such as "hidden
            parts"; the letters of a group are added up over the file.
    """

    place: str
    text: str
    group: str | None = None


class Account:
    """What a document holds, what of it is read, and what is read but not shown.

    Attributes:
        held: all texts that the file holds, in its order, whether they are read or not.
    """

    # shares of a page: smaller pictures are stamps or signs, up to this share in all; a larger one may be a picture of
    # text
    STAMP, PICTURE = 0.02, 0.4
    # what may be unread, or read and not shown, where a text is called not marked: a share of the letters, and a number
    SHARE, LETTERS = 0.1, 400
    LABELS = 100  # letters of one group that may be unread
    UNKNOWN = 100  # the characters that a part of unknown size may hold, such as a picture

    def __init__(self) -> None:
        self.held: list[Piece] = []
        self._beside: list[Piece] = []
        self._builders: dict[tuple[str, str], TextBuilder] = {}
        self._not_shown: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._pages: dict[str, list[int]] = {}
        self._weight = 0.0
        self._small_pictures: list[float] = []  # their shares of a page
        self._unknown = False

    def add(self, what: str, count: int = 1, *, weight: float = 0, page: int | None = None) -> None:
        """Count parts that are not read.

        Args:
            what: what they are, in the plural.
            count: how many.
            weight: the characters of the document's own text that they may hold.
            page: the number of the page where they stand.
        """
        self._counts[what] += count
        self._weight += weight
        self._pages.setdefault(what, []).extend([] if page is None else [page])

    def add_unknown(self, what: str, count: int = 1, *, page: int | None = None) -> None:
        """Count parts that are not read and may hold a text of any length, such as a damaged stream.

        No text of such a document is called not marked.
        """
        self.add(what, count, weight=self.UNKNOWN * count, page=page)
        self._unknown = self._unknown or count > 0

    def add_picture(self, width: float | None, height: float | None, what: str = "pictures") -> None:
        """Count a picture of this size in points; None if it is unknown."""
        if width is None or height is None or not width * height:
            self.add(what, weight=self.UNKNOWN)
            return
        share = width * height / _PAGE_AREA
        if share < self.STAMP:
            self._small_pictures.append(share)
        else:
            self.add(what, weight=PAGE_CHARS * share if share > self.PICTURE else 0)

    def add_beside(self, place: str, text: str) -> None:
        """Add lines that stand apart from the body, such as "headers": they are read behind it, if not in it."""
        self._beside.append(Piece(place, text.strip("\n")))

    def at(self, place: str, part: str = "") -> TextBuilder:
        """The builder of what stands apart from the body at a place, such as "headers", at the beginning of a line.

        What is not one text, although it stands at one place, has builders by the `part` of the file.
        """
        builder = self._builders.setdefault((place, part), TextBuilder())
        builder.block()
        return builder

    def put(self, place: str, text: str | None) -> None:
        """Add a line to what stands apart from the body at a place, unless it is empty."""
        if text and text.strip():
            self.at(place).add(text, exact=True)

    @property
    def hidden(self) -> TextBuilder:
        """The builder of the texts that the format hides."""
        builder = self._builders.setdefault((HIDDEN, ""), TextBuilder())
        builder.room()
        return builder

    def add_not_shown(self, place: str, text: str) -> None:
        """Count a text that is read although readers of the file do not see it, such as one of size 0."""
        self._not_shown[place] += len(_letters(text))

    def reading(
        self, body: str, *, left_out: str = "", ascii_only: bool = False, refuse: bool = True, **fields: Any
    ) -> Reading:
        """The reading of a document: its body, then what stands beside it, with notes on what was not read.

        Args:
            body: the text of the body.
            left_out: what was left out on purpose; its letters count as read.
            ascii_only: compare only the letters of ASCII, where those of other alphabets are encoded by fonts.
            refuse: refuse a document of which most was not read.
            fields: further fields of the reading.

        Raises:
            Refusal: most of the document was not read, and `refuse` is set.
        """
        for (place, _), builder in self._builders.items():
            self.add_beside(place, builder.text)
        hidden = "".join(piece.text for piece in self._beside if piece.place == HIDDEN)
        if letters_in(hidden) > letters_in(body):  # in which a mark of the body could be lost
            self.add_not_shown(HIDDEN, hidden)
        beside = self._read_beside(body)
        text = "\n\n".join(part for part in (body, *(piece.text for piece in beside)) if part.strip())
        whole = {_letters(piece.text) for piece in self._beside}
        held = [piece for piece in self.held if piece.group is None or _letters(piece.text) not in whole]
        unread = unread_letters(f"{text}\n{left_out}", held, ascii_only=ascii_only)
        counted = [*self._notes()]
        notes = (*(note for what, note in counted if what not in _UNSEEN), *_letter_notes(unread, "were not read"))
        if refuse and self._weight + unread.total() > len(text):
            read = f"{len(text)} characters of text" if text else "no text"
            raise Refusal(
                f"is not read for the most part: {'; '.join(notes[:_SHOWN])}; it holds {read} beside that. Give its "
                "text as plain text; pages that are pictures, as a scanner makes them, need a program for character "
                "recognition (OCR) first"
            )
        notes += (*_letter_notes(self._not_shown, "were read, although the document does not show them"),)
        how = (*fields.pop("how", ()), *_read_behind(beside), *(note for what, note in counted if what in _UNSEEN))
        because = self._uncertain_because(unread.total(), len(_letters(text)))
        return Reading(text, notes=notes, how=how, uncertain_because=because, **fields)

    def _uncertain_because(self, unread: int, read: int) -> str | None:
        if self._unknown or unread >= self.LETTERS or unread > self.SHARE * (unread + read):
            return "unread"
        not_shown = self._not_shown.total()
        if not_shown >= self.LETTERS or not_shown > self.SHARE * read:
            return "not_shown"
        return None

    def _read_beside(self, body: str) -> list[Piece]:
        """The texts beside the body that neither the body nor a text before them holds."""
        if not self._beside:
            return []
        once = list({piece.text: piece for piece in self._beside}.values())
        letters = [_letters(text) for text in (body, *(piece.text for piece in once))]
        index, starts = _Index("".join(letters)), accumulate(map(len, letters))
        lettered = zip(once, letters[1:], starts, strict=False)
        return [piece for piece, own, start in lettered if len(own) >= _FEWEST and any(index.gaps(own, start))]

    def _notes(self) -> Iterator[tuple[str, str]]:
        """What was counted and is not read, with a note on it."""
        counts = self._counts.copy()
        if sum(self._small_pictures) > self.STAMP:
            counts["small pictures"] = len(self._small_pictures)
        for what, count in counts.items():
            if not count:
                continue
            pages = ", ".join(map(str, self._pages.get(what, [])[:20]))
            named = what if count > 1 else _PLURAL.sub("", what, count=1)
            yield what, f"{count} {named}{f' (page {pages})' if pages else ''} {'are' if count > 1 else 'is'} left out"


def _letter_notes(places: Counter[str], what: str) -> Iterator[str]:
    return (f"{count:,} letters in {place} {what}" for place, count in places.most_common() if count)


def _read_behind(beside: list[Piece]) -> list[str]:
    """A note on what was read behind the body."""
    letters: Counter[str] = Counter()
    for piece in beside:
        letters[piece.place] += len(_letters(piece.text))
    named = ", ".join(f"{place} ({count:,} letters)" for place, count in letters.items())
    return [f"read behind the body: {named}"] if named else []


def unread_letters(text: str, held: Iterable[Piece], *, ascii_only: bool = False) -> Counter[str]:
    """The number of letters that a file holds, in its order, and its reading does not have, by place.

    Runs of fewer than 16 letters count only where most of a place is not read: elsewhere readers differ in small things
    such as the numbers of lists. Up to 100 letters of a group in all do not count.
    """
    pieces = [(piece, _letters(_DATA.sub(" ", piece.text), ascii_only)) for piece in held]
    if not pieces:
        return Counter()  # without an index of the text, which may be long
    ends = list(accumulate(len(letters) for _, letters in pieces))
    kinds: dict[tuple[str, str | None], Counter[str]] = {}
    for piece, letters in pieces:
        kinds.setdefault((piece.place, piece.group), Counter())["held"] += len(letters)
    for start, end in _Index(_letters(text, ascii_only)).gaps("".join(letters for _, letters in pieces)):
        run = "long" if end - start >= _AGREE else "short"
        at = bisect_right(ends, start)
        while start < end:
            stop, piece = min(end, ends[at]), pieces[at][0]
            kinds[piece.place, piece.group][run] += stop - start
            start, at = stop, at + 1
    groups: Counter[str | None] = Counter()
    unread = {}
    for (place, group), letters_of in kinds.items():
        missing = letters_of["long"] + letters_of["short"]
        mostly = missing > letters_of["held"] / 2 and (group or missing > Account.LABELS)
        unread[place, group] = missing if mostly else letters_of["long"]
        groups[group] += unread[place, group]
    counted: Counter[str] = Counter()
    for (place, group), count in unread.items():
        if group is None or groups[group] > Account.LABELS:
            counted[place] += count
    return counted


def letters_in(text: str) -> int:
    """The number of letters of a text."""
    return sum(map(str.isalpha, text))


def _letters(text: str, ascii_only: bool = False) -> str:
    return (_NO_ASCII_LETTERS if ascii_only else _NO_LETTERS).sub("", text)


class _Index:
    """Letters that were read, in which the places of other letters are found."""

    def __init__(self, read: str) -> None:
        self._read = read
        self._blocks: dict[str, int] = {}
        for place in range(0, len(read) - _BLOCK + 1, _BLOCK):
            self._blocks.setdefault(read[place : place + _BLOCK], place)

    def gaps(self, held: str, before: int | None = None) -> Iterator[tuple[int, int]]:
        """The runs [start, end) of these letters that stand nowhere in what was read, up to the letter `before`."""
        stop_at = len(self._read) if before is None else before
        at = end = 0
        while at + _BLOCK <= len(held):
            place = self._blocks.get(held[at : at + _BLOCK], -1)
            start, stop = self._agreement(held, at, place, end) if 0 <= place < stop_at else (at, at)
            if stop - start < _AGREE:
                at += 1
                continue
            if start > end:
                yield end, start
            at = end = stop
        if len(held) > end:
            yield end, len(held)

    def _agreement(self, held: str, at: int, place: int, lowest: int) -> tuple[int, int]:
        """How far these letters agree around `at` with what was read around `place`: [start, end) of `held`."""
        read = self._read
        start, before = at, place
        while start > lowest and before and held[start - 1] == read[before - 1]:
            start, before = start - 1, before - 1
        end, after = at + _BLOCK, place + _BLOCK
        while end < len(held) and after < len(read) and held[end] == read[after]:
            end, after = end + 1, after + 1
        return start, end
