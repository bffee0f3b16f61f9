"""Texts with holes: how they are given, encoded, and put together again once the holes are filled."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dgmark.arguments.checks import shown
from dgmark.arguments.contents import as_text, is_id
from dgmark.checkpoint.tokenizer import Tokenizer, well_formed
from dgmark.decode.steps.canvas import Canvas
from dgmark.errors import InputError, PromptTooLong
from dgmark.models.denoiser import Denoiser, encode_text, traits_of

# A text in pieces; a number between them is a hole of so many tokens.
Parts = Sequence[str | int]

_EXAMPLE = '[["Once upon", 24, "happily ever after."]]'
_HOLE = re.compile(r"\[mask:(\d{1,6})\]")
# Tokens before some others that decide how these read: whether they begin a text, or end a character.
_TOKENS_BEFORE = 16


def holes_in(text: str) -> list[str | int]:
    """Split a text in which `[mask:N]` stands for a hole of N tokens into its parts."""
    pieces = _HOLE.split(text)
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces) if index % 2 or piece]


@dataclass(frozen=True)
class Filled:
    """A whole text, the ids that the model saw, and the characters [start, end) of its holes."""

    text: str
    token_ids: list[int]
    spans: list[tuple[int, int]]


@dataclass(frozen=True)
class HoledText:
    """A text with holes: its parts, its ids with masks in the holes, and where the holes are."""

    parts: list[str | int]
    ids: list[int]
    holes: list[tuple[int, int]]

    def canvas(self, mask_id: int) -> Canvas:
        """The canvas in which the holes are filled."""
        return Canvas.with_holes(self.ids, [i for hole in self.holes for i in range(*hole)], mask_id)

    def filled(self, tokenizer: Tokenizer, region: list[int]) -> Filled:
        """The text with these ids from its first hole to the end of its last.

        The given strings are in it as they were given: what tokenizers make of them lacks special tokens, is composed
        or in small letters. A space that a tokenizer puts before a string is written at the end of the hole before it,
        so that the text reads as the model saw it.
        """
        whole = self.ids[: self.holes[0][0]] + region + self.ids[self.holes[-1][1] :]
        holes, text, spans = iter(self.holes), "", []
        for part, following in zip(self.parts, [*self.parts[1:], None], strict=True):
            if isinstance(part, str):
                text += part
            else:
                start, (first, last) = len(text), next(holes)
                text += added_text(tokenizer, whole, first, last)
                if isinstance(following, str) and not following[:1].isspace():
                    text += " " * added_text(tokenizer, whole, last, last + 1).startswith(" ")
                spans.append((start, len(text)))
        return Filled(text, whole, spans)


def added_text(tokenizer: Tokenizer, ids: list[int], start: int, end: int) -> str:
    """The characters that the tokens [start, end) add to the text of those before them."""
    before = ids[max(0, start - _TOKENS_BEFORE) : start]
    text, longer = tokenizer.decode(before), tokenizer.decode(before + ids[start:end])
    return longer.removeprefix(text) if longer.startswith(text) else tokenizer.decode(ids[start:end])


def holed_text(model: Denoiser, parts: Parts) -> HoledText:
    """Encode a text with holes."""
    ids: list[int] = []
    holes: list[tuple[int, int]] = []
    pieces = [_piece(part) for part in sequence_of(parts)]
    _check_room(model, sum(piece for piece in pieces if not isinstance(piece, str)))  # before so long a list is made
    for piece in pieces:
        if isinstance(piece, str):
            ids += encode_text(model, piece)
        else:
            holes.append((len(ids), len(ids) + piece))
            ids += [model.mask_id] * piece
    if not holes:
        raise InputError("there is no hole to fill: give a number of tokens between the strings, or [mask:N]")
    if len(ids) == sum(end - start for start, end in holes):
        raise InputError("there is no text around the holes: give the model at least one token to start from")
    _check_room(model, len(ids))
    return HoledText(pieces, ids, holes)


def sequence_of(value: Any) -> Sequence[Any]:
    """The texts to fill, or the parts of one of them; what is not a list is an InputError."""
    # a range counts ids, and may be too long to look at
    if isinstance(value, str | bytes | bytearray | range) or not isinstance(value, Sequence):
        raise InputError(
            f"a text to fill is a list of strings and hole lengths, not {shown(value)}: give a list of such lists, "
            f"like {_EXAMPLE}; holes_in splits a text with [mask:N] in it"
        )
    return value


def _piece(part: object) -> str | int:
    """A part of a text to fill: a string, or the tokens of a hole; anything else is an InputError."""
    text = as_text(part)
    if text is not None and (formed := well_formed(text)) != text:
        place = next(place for place, (old, new) in enumerate(zip(text, formed, strict=True)) if old != new)
        raise InputError(
            f"a string of a text to fill has half a character, the surrogate {text[place]!a}, at character {place}, "
            "and a text in UTF-8 cannot hold it: take it out"
        )
    if text is not None:
        return text
    if is_id(part) and int(part) > 0:  # type: ignore[call-overload]
        return int(part)  # type: ignore[call-overload,no-any-return]
    raise InputError(f"a part of a text to fill is a string or a positive number of tokens, not {shown(part)}")


def _check_room(model: Denoiser, tokens: int) -> None:
    if tokens > model.context_length:
        raise PromptTooLong(
            f"text and holes have {tokens} tokens or more, but {traits_of(model).name} holds {model.context_length}: "
            "shorten them"
        )
