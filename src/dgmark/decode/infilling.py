"""Infilling: fill the holes of a text with marked tokens. The text around the holes stays as it is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from dgmark.arguments import shown
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.contents.accepted import as_text
from dgmark.contents.kinds import is_id
from dgmark.decode.canvas import Canvas, Progress, Trace
from dgmark.decode.config import DecodeConfig
from dgmark.decode.generation import responses_of
from dgmark.decode.prompts import Prepared, Request, check_progress, prompts_of, requests_of
from dgmark.decode.remasking import Remasker, Remasking
from dgmark.errors import InputError, PromptTooLong, SettingsError
from dgmark.models.denoiser import Denoiser, check_model, traits_of
from dgmark.watermark.key import WatermarkKey

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
        text: the whole text.
        token_ids: ids of the whole text.
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

    def to_row(self, row_id: str) -> dict[str, Any]:
        """The infilling as a JSON row, without the trace."""
        names = ("parts", "text", "token_ids", "holes", "spans", "seed", "model", "dtype", "key_fingerprint", "subkey")
        row = {"id": row_id} | {name: getattr(self, name) for name in (*names, "settings")}
        return row | {"schema": INFILLING_SCHEMA} | ({} if self.remasking is None else asdict(self.remasking))


def holes_in(text: str) -> list[str | int]:
    """Split a text in which `[mask:N]` stands for a hole of N tokens into its parts."""
    pieces = _HOLE.split(text)
    return [int(piece) if index % 2 else piece for index, piece in enumerate(pieces) if index % 2 or piece]


def infill(
    model: Denoiser,
    texts: Sequence[Parts] | Sequence[str],
    *,
    key: WatermarkKey | None,
    subkey: int | None = None,
    share: float | None = None,
    keep: str | None = None,
    target: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Infilling]:
    """Fill the holes of texts, marked with `key`.

    Blocks go from the first hole to the end of the last and are filled left to right. Every step sees the whole text,
    also what comes after a hole. End tokens are never filled in. Positions of the mark are counted from the text's
    first token.

    Args:
        model: a loaded model.
        texts: each a list of strings and hole lengths in tokens, like ["Once upon", 24, "happily ever after."]; with
            `share`, each a text without holes.
        key: a key for the model's tokenizer and vocabulary; None for tokens without a mark. If it has sub-keys,
            each text is marked with another one, which the operating system draws: only `subkey` gives a text again.
        subkey: the sub-key to mark all texts with instead, 0 to N - 1: their payload.
        share: choose the holes: mask this share of each text's tokens, the words of which the model is least sure, and
            replace them by words. Quotations, code, headings, addresses, names and numbers stay.
        keep: with `share`, a regular expression of what else stays.
        target: with `share`, stop as soon as the text's p-value is at most this.
        seed: text i uses seed + i.
        progress: called after each step with the number of tokens it committed.
        settings: those of `DecodeConfig` except length and steps, which follow from the holes.

    Raises:
        InputError: a text has no hole, or nothing around its holes; with `share`, no word may be replaced, or the
            tokenizer does not give the text back.
        PromptTooLong: a text with holes does not fit the context.
        SettingsError: a setting is invalid or leaves no mark, the key is no `WatermarkKey`, or it has no such sub-key.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    check_model(model)
    check_progress(progress)
    for name in ("length", "steps"):
        if settings.get(name) is not None:
            raise SettingsError(f"infilling takes no {name}, because the holes set the number of tokens: leave it out")
    if share is not None:
        remasker = Remasker(model, key, config_of_remasking(model, settings), share, keep, target)
        return [_remasked(model, remasker, one, progress) for one in requests_of(_whole(texts), key, seed, subkey)]
    if keep is not None or target is not None:
        raise SettingsError("keep and target say how holes are chosen: give the share of tokens to mask, too")
    config = config_of_holes(model, settings)
    requests = requests_of([holed_text(model, parts) for parts in _sequence(texts)], key, seed, subkey)
    prepared = Prepared.of(model, requests, config, encode=lambda text: text.canvas(model.mask_id))
    made = []
    for row, request in enumerate(prepared.requests):
        response = responses_of(prepared, [row], progress)[row]
        made.append(_infilling(model, request, request.prompt, response.token_ids, response.trace, config))
    return made


def _whole(texts: Any) -> list[str]:
    """Texts without holes.

    Raises:
        InputError: one of them is none.
    """
    try:
        prompts = prompts_of(texts)
    except SettingsError as error:
        raise InputError(f"with a share, a text to fill is a string without holes: {error}") from None
    for number, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise InputError(f"with a share, a text to fill is a string without holes: text {number} is token ids")
    return [str(prompt) for prompt in prompts]


def _remasked(model: Denoiser, remasker: Remasker, request: Request, progress: Progress | None) -> Infilling:
    """Mask and fill a share of a text; see `infill`."""
    ids, places, trace, remasking = remasker.fill(request.prompt, request, progress)
    holes = _runs(places)
    edges = [0, *(edge for hole in holes for edge in hole), len(ids)]
    pieces = [ids[low:high] for low, high in pairwise(edges)]
    parts = [len(piece) if index % 2 else model.tokenizer.decode(piece) for index, piece in enumerate(pieces)]
    text, region = HoledText(parts, ids, holes), ids[holes[0][0] : holes[-1][1]]
    return _infilling(model, request, text, region, trace, remasker.config, remasking)


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
    return config_of_holes(model, {**own, **settings})


def config_of_holes(model: Denoiser, settings: Mapping[str, Any]) -> DecodeConfig:
    """The settings of a decode whose length follows from its holes.

    Raises:
        SettingsError: a setting is invalid.
    """
    complete: dict[str, Any] = {**traits_of(model).defaults, **settings}
    complete["length"] = complete.get("block_length", DecodeConfig.block_length)  # any multiple of it is valid
    return DecodeConfig.of(model, **complete)


def shared_fields(model: Denoiser, key: WatermarkKey | None, config: DecodeConfig) -> dict[str, Any]:
    """The fields that all infillings of one call share; `config_of_holes` makes the config."""
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
    remasking: Remasking | None = None,
) -> Infilling:
    """The text with these ids from its first hole to the end of its last."""
    filled = text.filled(model.tokenizer, region)
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
        **shared_fields(model, request.key, config),
    )


@dataclass(frozen=True)
class Filled:
    """A whole text, its ids, and the characters [start, end) of its holes."""

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
        """The text with these ids from its first hole to the end of its last."""
        whole = self.ids[: self.holes[0][0]] + region + self.ids[self.holes[-1][1] :]
        spans = [
            (len(tokenizer.decode(whole[:start])), len(tokenizer.decode(whole[:end]))) for start, end in self.holes
        ]
        return Filled(tokenizer.decode(whole), whole, spans)


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
    if isinstance(value, str) or not isinstance(value, Sequence):
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
