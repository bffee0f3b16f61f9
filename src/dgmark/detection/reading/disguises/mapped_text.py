"""`MappedText`: a text that was made from another by edits, with the place of each of its characters there."""

import re
from collections.abc import Iterable
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
                ranges are passed over.
        """
        texts: list[str] = []
        places: list[np.ndarray] = []
        at = 0
        for start, end, new in edits:
            if start == end:
                continue
            texts += (self.text[at:start], new)
            places += (self.places[at:start], np.full(len(new), self.places[end - 1]))
            at = end
        if not texts:
            return self
        return MappedText("".join([*texts, self.text[at:]]), np.concatenate([*places, self.places[at:]]))

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
