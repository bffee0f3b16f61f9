"""`MappedText`: a text that was made from another by edits, with the place of each of its characters there."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

# each line of a text, without its end
LINE = re.compile("^.*$", re.MULTILINE)


@dataclass(frozen=True)
class MappedText:
    """A text, and where each of its characters stood in the text that it was made from.

    Attributes:
        text: the text.
        places: for each character, its index in the original; of a character that was put in, the index of the last
            one that it stands for. They ascend, but for columns that are read one after the other.
    """

    text: str
    places: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, text: str) -> "MappedText":
        """A text that was not edited."""
        return cls(text, np.arange(len(text)))

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> "MappedText":
        """This text with other characters in some places.

        Args:
            edits: ranges [start, end) of this text, in order and apart, each with what stands there instead. Empty
                ranges are passed over. As many characters as stood there take the places of these.
        """
        texts: list[str] = []
        places: list[np.ndarray] = []
        at = 0
        for start, end, new in edits:
            if start == end:
                continue
            texts += (self.text[at:start], new)
            one_for_one = len(new) == end - start
            of_new = self.places[start:end] if one_for_one else np.full(len(new), self.places[end - 1])
            places += (self.places[at:start], of_new)
            at = end
        if not texts:
            return self
        return MappedText("".join([*texts, self.text[at:]]), np.concatenate([*places, self.places[at:]]))

    def replaced(self, pattern: re.Pattern[str], new: str | Callable[[re.Match[str]], str]) -> "MappedText":
        """This text with `new`, or what it makes of them, in place of the matches of a pattern."""
        made = ((found, new if isinstance(new, str) else new(found)) for found in pattern.finditer(self.text))
        return self.edited((*found.span(), text) for found, text in made if text != found[0])

    def translated(self, table: Mapping[int, str]) -> "MappedText":
        """This text with what a table has in place of its characters, by their numbers."""
        text = self.text.translate(table)
        if text == self.text:
            return self
        return MappedText(text, np.repeat(self.places, [len(table.get(ord(sign), sign)) for sign in self.text]))

    def then(self, other: "MappedText") -> "MappedText":
        """A text that was made from this one, with the places of its characters in the original of this one."""
        return MappedText(other.text, self.places[other.places])

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The range [start, end) of this text as a range of the original."""
        if start == end:
            place = int(self.places[start]) if start < len(self.places) else int(self.places[-1]) + 1
            return place, place
        places = self.places[start:end]
        return int(places.min()), int(places.max()) + 1
