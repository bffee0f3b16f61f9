"""Infilling: fill the holes of a text with marked tokens. The text around the holes stays as it is."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Unpack, overload

from dgmark.arguments.checks import Errors, returns_errors, shown
from dgmark.arguments.contents import as_text, is_id
from dgmark.checkpoint.tokenizer import Tokenizer, well_formed
from dgmark.decode.canvas import Canvas, Progress, Trace
from dgmark.decode.config import DecodeConfig, DecodeSettings, settings_of
from dgmark.decode.generation import responses_of
from dgmark.decode.own_check import Check, MarkTally, TextChecker, checker_of
from dgmark.decode.prompts import (
    KeyOfEach,
    Prepared,
    Request,
    RowArguments,
    check_progress,
    prompts_or_errors,
    requests_of,
)
from dgmark.decode.remasking import Remasker, Remasking
from dgmark.errors import DgmarkError, InputError, PromptTooLong, SettingsError
from dgmark.models.denoiser import Denoiser, check_model, traits_of
from dgmark.watermark.key import WatermarkKey, check_key

INFILLING_SCHEMA = 1

# A text in pieces; a number between them is a hole of so many tokens.
Parts = Sequence[str | int]

_EXAMPLE = '[["Once upon", 24, "happily ever after."]]'
_HOLE = re.compile(r"\[mask:(\d{1,6})\]")


@dataclass(frozen=True)
class Infilling:
    """A text whose holes were filled.

    Attributes:
        parts: the text and the lengths of its holes, as `infill` was called with them.
        text: the whole text; between its holes stand the strings of `parts`, byte for byte.
        token_ids: ids of the whole text, as the model saw it.
        holes: the tokens [start, end) of each hole in `token_ids`.
        spans: the characters [start, end) of each hole in `text`; the detector scores these with `only=spans`.
        seed: seed of this text: with the sub-key it gives the same text again.
        model: the model's name.
        dtype: number format of the forward; None if the model does not state it.
        key_fingerprint: fingerprint of the key; None without a mark.
        settings: the decoding settings.
        trace: the commits in the order they were made.
        subkey: the number of the sub-key that the text is marked with; None for a key without sub-keys.
        remasking: what was done to a text whose holes were chosen; None if they were given.
        choices: how many of the filled tokens had a choice, which is where a mark can be (`Trace`).
        check: what a checker with the same key finds in the holes, or, if they were chosen, in the whole text; None if
            the text was not checked.
    """

    parts: list[str | int]
    text: str
    token_ids: list[int]
    holes: list[tuple[int, int]]
    spans: list[tuple[int, int]]
    seed: int
    model: str
    dtype: str | None
    key_fingerprint: str | None
    settings: dict[str, Any]
    trace: Trace
    subkey: int | None = None
    remasking: Remasking | None = None
    choices: int = 0
    check: Check | None = None

    def to_row(self, row_id: str) -> dict[str, Any]:
        """The infilling as a JSON row, without the trace."""
        names = ("parts", "text", "token_ids", "holes", "spans", "seed", "model", "dtype", "key_fingerprint", "subkey")
        row = {"id": row_id} | {name: getattr(self, name) for name in (*names, "choices", "settings")}
        row |= {} if self.check is None else {"check": asdict(self.check)}
        return row | {"schema": INFILLING_SCHEMA} | ({} if self.remasking is None else asdict(self.remasking))


def holes_in(text: str) -> list[str | int]:
    """Split a text in which `[mask:N]` stands for a hole of N tokens into its parts."""
    pieces = _HOLE.split(text)
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces) if index % 2 or piece]


class InfillArguments(RowArguments, total=False):
    """The keyword arguments of `infill`, for type checkers."""

    share: float | None
    keep: str | None
    target: float | None


Texts = Sequence[Parts] | Sequence[str]


@overload
def infill(
    model: Denoiser, texts: Texts, *, errors: Literal["raise"] = "raise", **arguments: Unpack[InfillArguments]
) -> list[Infilling]: ...


@overload
def infill(
    model: Denoiser, texts: Texts, *, errors: Literal["return"], **arguments: Unpack[InfillArguments]
) -> list[Infilling | DgmarkError]: ...


def infill(
    model: Denoiser,
    texts: Texts,
    *,
    key: KeyOfEach,
    subkey: int | Sequence[int | None] | None = None,
    share: float | None = None,
    keep: str | None = None,
    target: float | None = None,
    seed: int | Sequence[int] = 0,
    ids: Iterable[str | int] | None = None,
    check: bool = False,
    progress: Progress | None = None,
    errors: Errors = "raise",
    config: DecodeConfig | None = None,
    **settings: Unpack[DecodeSettings],
) -> Sequence[Any]:
    """Fill the holes of texts, marked with `key`.

    Blocks go from the first hole to the end of the last and are filled left to right. Every step sees the whole text,
    also what comes after a hole. End tokens are never filled in. Positions of the mark are counted from the text's
    first token.

    Args:
        model: a loaded model.
        texts: each a list of strings and hole lengths in tokens, like ["Once upon", 24, "happily ever after."]; with
            `share`, each a text without holes.
        key: a key for the model's tokenizer and vocabulary; None for tokens without a mark; or a list with one of these
            for each text. If it has sub-keys, each text is marked with another one, which the operating system draws:
            only `subkey` or `ids` gives a text again.
        subkey: the sub-key to mark all texts with instead, 0 to N - 1: their payload; or a list with that of each.
        share: choose the holes: mask this share of each text's tokens, the words of which the model is least sure, and
            replace them by words. Quotations, code, headings, addresses, names and numbers stay.
        keep: with `share`, a regular expression of what else stays.
        target: with `share`, stop as soon as the text's p-value is at most this.
        seed: text i uses seed + i; or a list with the seed of each text.
        ids: the ids of the texts, from which their seeds and sub-keys follow; see `generate`.
        check: look for the mark as a checker with the same key would: in the holes (`only`), and with `share` in the
            whole text.
        progress: called after each step with the number of tokens it committed.
        errors: "return" gives the error of a text that cannot be filled in its place, and all others.
        config: all decoding settings at once, in place of `settings`; its length and steps have no effect.
        settings: those of `DecodeConfig` except length and steps, which follow from the holes.

    Warns:
        MarkWarning: once, if no text bears a mark because no token had a choice, or if a check does not find a text.

    Raises:
        InputError: a text has no hole, nothing around its holes, or half a character; with `share`, no word may be
            replaced, or the tokenizer does not give the text back.
        PromptTooLong: a text with holes does not fit the context.
        SettingsError: a setting is invalid or leaves no mark, the key is no `WatermarkKey`, it has no such sub-key, or
            there is no key to check with.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    check_model(model)
    check_progress(progress)
    strict, checker = not returns_errors(errors), checker_of(model, key, check)
    for name in ("length", "steps"):
        if settings.get(name) is not None:
            raise SettingsError(f"infilling takes no {name}, because the holes set the number of tokens: leave it out")
    given = {name: one for name, one in settings_of(config, settings).items() if name not in ("length", "steps")}
    if share is None:
        if keep is not None or target is not None:
            raise SettingsError("keep and target say how holes are chosen: give the share of tokens to mask, too")
        requests = requests_of([_holed_or_error(model, parts) for parts in _sequence(texts)], key, seed, subkey, ids)
        fill = _filler(model, requests, DecodeConfig.of(model, **given), progress, checker, strict=strict)
    else:
        remasking = config_of_remasking(model, given)
        requests = requests_of(_whole(texts), key, seed, subkey, ids)
        keys: list[Any] = [*key] if isinstance(key, list | tuple) else [key]
        for one in keys:
            check_key(one, or_none=True)
        remaskers = {one: Remasker(model, one, remasking, share, keep, target) for one in {*keys}}

        def fill(row: int, request: Request) -> Infilling:
            return _remasked(model, remaskers[keys[row % len(keys)]], request, progress, checker)

    made: list[Infilling | DgmarkError] = []
    for row, request in enumerate(requests):
        try:
            if isinstance(request.prompt, DgmarkError):
                raise request.prompt
            made.append(fill(row, request))
        except DgmarkError as error:
            if strict:
                raise
            made.append(error)
    MarkTally.of(one for one in made if isinstance(one, Infilling)).warn()
    return made


# fills the text of a request, which has this number
_Fill = Callable[[int, Request], Infilling]


def _filler(
    model: Denoiser,
    requests: Sequence[Request],
    config: DecodeConfig,
    progress: Progress | None,
    checker: TextChecker | None,
    *,
    strict: bool,
) -> _Fill:
    """Fills given holes."""
    encode = partial(HoledText.canvas, mask_id=model.mask_id)
    prepared = Prepared.of(model, requests, config, encode=encode, strict=strict)

    def fill(row: int, request: Request) -> Infilling:
        if row in prepared.refused:
            raise prepared.refused[row]
        response = responses_of(prepared, [row], progress)[row]
        return _infilling(model, request, request.prompt, response.token_ids, response.trace, config, checker)

    return fill


def _holed_or_error(model: Denoiser, parts: Any) -> "HoledText | DgmarkError":
    try:
        return holed_text(model, parts)
    except DgmarkError as error:
        return error


def _whole(texts: Any) -> list[str | DgmarkError]:
    """Texts without holes; in the place of what is none, the error that says why.

    Raises:
        InputError: they are no texts.
    """
    problem = "with a share, a text to fill is a string without holes: "
    try:
        prompts = prompts_or_errors(texts)
    except SettingsError as error:
        raise InputError(f"{problem}{error}") from None
    found: list[str | DgmarkError] = []
    for number, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            found.append(prompt)
        else:
            why = f"text {number} is token ids" if isinstance(prompt, list) else str(prompt)
            found.append(InputError(problem + why))
    return found


def _remasked(
    model: Denoiser, remasker: Remasker, request: Request, progress: Progress | None, checker: TextChecker | None
) -> Infilling:
    """Mask and fill a share of a text; see `infill`."""
    ids, places, trace, remasking = remasker.fill(request.prompt, request, progress)
    holes, old = _runs(places), model.tokenizer.encode(remasking.original)
    edges = [0, *(edge for hole in holes for edge in hole), len(ids)]
    parts: list[str | int] = [
        high - low if index % 2 else _added_text(model.tokenizer, old, low, high)
        for index, (low, high) in enumerate(pairwise(edges))
    ]
    text, region = HoledText(parts, ids, holes), ids[holes[0][0] : holes[-1][1]]
    return _infilling(model, request, text, region, trace, remasker.config, checker, remasking)


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Ascending places as runs [start, end)."""
    starts = [place for place in places if place - 1 not in places]
    ends = [place + 1 for place in places if place + 1 not in places]
    return list(zip(starts, ends, strict=True))


def config_of_remasking(model: Denoiser, settings: Mapping[str, Any]) -> DecodeConfig:
    """The settings of a decode of scattered words: those of a block are committed at once, as they are far apart.

    Raises:
        SettingsError: a setting is invalid.
    """
    by_quota = "commit" in settings or settings.get("strategy", "confidence") != "confidence"
    own = {} if by_quota else {"commit": "threshold", "threshold": 1e-6}
    return DecodeConfig.of(model, **{**own, **settings})


def shared_fields(model: Denoiser, key: WatermarkKey | None, config: DecodeConfig) -> dict[str, Any]:
    """The fields that all infillings of one call share."""
    settings = config.to_dict()
    return {
        "model": traits_of(model).name,
        "dtype": traits_of(model).number_format,
        "key_fingerprint": None if key is None else key.fingerprint,
        "settings": {name: value for name, value in settings.items() if name not in ("length", "steps")},
    }


def _infilling(
    model: Denoiser,
    request: Request,
    text: "HoledText",
    region: list[int],
    trace: Trace,
    config: DecodeConfig,
    checker: TextChecker | None,
    remasking: Remasking | None = None,
) -> Infilling:
    """The text with these ids from its first hole to the end of its last."""
    filled = text.filled(model.tokenizer, region)
    only = filled.spans if remasking is None else None
    return Infilling(
        parts=text.parts,
        text=filled.text,
        token_ids=filled.token_ids,
        holes=text.holes,
        spans=filled.spans,
        seed=request.seed,
        trace=trace,
        subkey=request.subkey,
        remasking=remasking,
        choices=trace.choices(),
        check=None if checker is None else checker(request.key, filled.text, only),
        **shared_fields(model, request.key, config),
    )


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

        The given strings stand in it as they were given: what tokenizers make of them lacks special tokens, is composed
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
                text += _added_text(tokenizer, whole, first, last)
                if isinstance(following, str) and not following[:1].isspace():
                    text += " " * _added_text(tokenizer, whole, last, last + 1).startswith(" ")
                spans.append((start, len(text)))
        return Filled(text, whole, spans)


# Tokens before some others that decide how these read: whether they begin a text, or end a character.
_TOKENS_BEFORE = 16


def _added_text(tokenizer: Tokenizer, ids: list[int], start: int, end: int) -> str:
    """The characters that the tokens [start, end) add to the text of those before them."""
    before = ids[max(0, start - _TOKENS_BEFORE) : start]
    text, longer = tokenizer.decode(before), tokenizer.decode(before + ids[start:end])
    return longer.removeprefix(text) if longer.startswith(text) else tokenizer.decode(ids[start:end])


def holed_text(model: Denoiser, parts: Parts) -> HoledText:
    """Encode a text with holes.

    Raises:
        InputError: it has no hole, or nothing around its holes, or a part is none.
        PromptTooLong: it does not fit the context.
    """
    ids: list[int] = []
    holes: list[tuple[int, int]] = []
    pieces = [_piece(part) for part in _sequence(parts)]
    _check_room(model, sum(piece for piece in pieces if not isinstance(piece, str)))  # before so long a list is made
    for piece in pieces:
        if isinstance(piece, str):
            ids += model.tokenizer.encode(piece)
        else:
            holes.append((len(ids), len(ids) + piece))
            ids += [model.mask_id] * piece
    if not holes:
        raise InputError("there is no hole to fill: give a number of tokens between the strings, or [mask:N]")
    if len(ids) == sum(end - start for start, end in holes):
        raise InputError("there is no text around the holes: give the model at least one token to start from")
    _check_room(model, len(ids))
    return HoledText(pieces, ids, holes)


def _sequence(value: Any) -> Sequence[Any]:
    """The texts to fill, or the parts of one of them.

    Raises:
        InputError: this is no list.
    """
    # a range counts ids, and may be too long to look at
    if isinstance(value, str | bytes | bytearray | range) or not isinstance(value, Sequence):
        raise InputError(
            f"a text to fill is a list of strings and hole lengths, not {shown(value)}: give a list of such lists, "
            f"like {_EXAMPLE}; holes_in splits a text with [mask:N] in it"
        )
    return value


def _piece(part: object) -> str | int:
    """A part of a text to fill: a string, or the tokens of a hole.

    Raises:
        InputError: it is neither.
    """
    text = as_text(part)
    if text is not None:
        _check_characters(text)
        return text
    if is_id(part) and int(part) > 0:  # type: ignore[call-overload]
        return int(part)  # type: ignore[call-overload,no-any-return]
    raise InputError(f"a part of a text to fill is a string or a positive number of tokens, not {shown(part)}")


def _check_characters(text: str) -> None:
    """Refuse a string that cannot stand in a file as it is.

    Raises:
        InputError: it has half a character.
    """
    formed = well_formed(text)
    if formed != text:
        place = next(place for place, (old, new) in enumerate(zip(text, formed, strict=True)) if old != new)
        raise InputError(
            f"a string of a text to fill has half a character, the surrogate {text[place]!a}, at character {place}, "
            "and a text in UTF-8 cannot hold it: take it out"
        )


def _check_room(model: Denoiser, tokens: int) -> None:
    if tokens > model.context_length:
        raise PromptTooLong(
            f"text and holes have {tokens} tokens or more, but {traits_of(model).name} holds {model.context_length}: "
            "shorten them"
        )
