"""Infilling: fill the holes of a text with marked tokens. The text around the holes stays as it is."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, Unpack, overload

from dgmark.arguments.checks import Errors, returns_errors
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.steps.canvas import Response, Trace, mapped, run_to_end
from dgmark.decode.texts.holes import HoledText, Parts, added_text, holed_text, sequence_of
from dgmark.decode.texts.own_check import TextChecker
from dgmark.decode.texts.prepared import Prepared
from dgmark.decode.texts.remasking import Remasker, Remasking, RemaskStep
from dgmark.decode.texts.requests import AskedRows, Request, RowArguments, prompts_or_errors
from dgmark.decode.texts.written import MarkTally, Written, written_fields
from dgmark.errors import DgmarkError, InputError, SettingsError, each
from dgmark.models.denoiser import Denoiser, check_model, encode_text

INFILLING_SCHEMA = 1
_SET_BY_HOLES = ("length", "steps")


@dataclass(frozen=True, kw_only=True)
class Infilling(Written):
    """A text whose holes were filled; see `Written` for further fields, of which some mean here:

    Attributes:
        parts: the text and the lengths of its holes, as `infill` was called with them.
        text: the whole text; between its holes stand the strings of `parts`, byte for byte.
        token_ids: ids of the whole text, as the model saw it.
        holes: the tokens [start, end) of each hole in `token_ids`.
        spans: the characters [start, end) of each hole in `text`; the detector scores these with `only=spans`.
        remasking: what was done to a text whose holes were chosen; None if they were given.
        choices: how many of the filled tokens had a choice.
        check: what a checker with the same key finds in the holes, or, if they were chosen, in the whole text.
    """

    parts: list[str | int]
    holes: list[tuple[int, int]]
    spans: list[tuple[int, int]]
    remasking: Remasking | None = None

    def to_row(self, row_id: str) -> dict[str, Any]:
        """The infilling as a JSON row, without the trace."""
        names = ("parts", "text", "token_ids", "holes", "spans", "seed", "model", "dtype", "key_fingerprint", "subkey")
        row = self._row_of(row_id, names, INFILLING_SCHEMA)
        return row | ({} if self.remasking is None else asdict(self.remasking))


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
    share: float | None = None,
    keep: str | None = None,
    target: float | None = None,
    errors: Errors = "raise",
    **arguments: Unpack[RowArguments],
) -> Sequence[Any]:
    """Fill the holes of texts, marked with `key`.

    Blocks go from the first hole to the end of the last and are filled left to right. Every step sees the whole text,
    also what comes after a hole. End tokens are never filled in. Positions of the mark are counted from the text's
    first token.

    Args:
        model: a loaded model.
        texts: each a list of strings and hole lengths in tokens, like ["Once upon", 24, "happily ever after."]; with
            `share`, each a text without holes.
        share: choose the holes: mask this share of each text's tokens, the words of which the model is least sure, and
            replace them by words. Quotations, code, headings, addresses, names and numbers stay.
        keep: with `share`, a regular expression of what else stays.
        target: with `share`, stop as soon as the text's p-value is at most this.
        errors: "return" gives the error of a text that cannot be filled in its place, and all others.
        arguments: those of `generate` but the size of batches, the chat template and padding; length and steps follow
            from the holes. A check looks for the mark in the holes (`only`), and with `share` in the whole text.

    Warns:
        MarkWarning: once, if no text bears a mark because no token had a choice, or if a check does not find a text.

    Raises:
        InputError: a text has no hole, nothing around its holes, or half a character; with `share`, no word may be
            replaced, or the tokenizer does not give the text back.
        PromptTooLong: a text with holes does not fit the context.
        SettingsError: a setting is invalid or leaves no mark, the key is not a `WatermarkKey` or lacks the sub-key, or
            there is no key to check with.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    check_model(model)
    strict = not returns_errors(errors)
    for name in _SET_BY_HOLES:
        if arguments.get(name) is not None:
            raise SettingsError(f"infilling takes no {name}, because the holes set the number of tokens: leave it out")
    asked = AskedRows(model, **arguments)
    if share is None:
        if keep is not None or target is not None:
            raise SettingsError("keep and target say how holes are chosen: give the share of tokens to mask, too")
        made = _fill_given_holes(model, texts, asked, strict)
    else:
        made = _fill_chosen_words(model, texts, (share, keep, target), asked, strict)
    MarkTally.of(text for text in made if isinstance(text, Infilling)).warn()
    return made


def _fill_given_holes(model: Denoiser, texts: Any, asked: AskedRows, strict: bool) -> list[Infilling | DgmarkError]:
    """Fill the holes of texts, those of one shape in batches."""
    requests = asked.requests(each(partial(holed_text, model), sequence_of(texts)))
    config = DecodeConfig.of(model, **settings_beside_holes(asked.settings))
    encode = partial(HoledText.canvas, mask_id=model.mask_id)
    prepared = Prepared.of(model, requests, config, encode=encode, strict=strict)

    def infilling(row: int, response: Response) -> Infilling:
        text, filled = requests[row].prompt, response.token_ids
        return _infilling(model, requests[row], text, filled, response.trace, config, asked.checker)

    return prepared.results(infilling, progress=asked.progress, strict=strict)


def _fill_chosen_words(
    model: Denoiser, texts: Any, choice: tuple[float, str | None, float | None], asked: AskedRows, strict: bool
) -> list[Infilling | DgmarkError]:
    """Mask and fill some words of each text, one text after the other, as each takes turns of its own."""
    config = config_of_remasking(model, settings_beside_holes(asked.settings))
    requests = asked.requests(_without_holes(texts))
    remaskers = {key: Remasker(model, key, config, *choice) for key in {request.whole_key for request in requests}}

    def fill(request: Request) -> Infilling:
        if isinstance(request.prompt, DgmarkError):
            raise request.prompt
        steps = remask_steps(remaskers[request.whole_key], request, asked.checker)
        return run_to_end(mapped(steps, lambda step: step.committed), asked.progress)

    return [fill(request) for request in requests] if strict else each(fill, requests)


def settings_beside_holes(settings: Settings) -> Settings:
    """The settings but those that follow from the holes."""
    return {name: value for name, value in settings.items() if name not in _SET_BY_HOLES}


def _without_holes(texts: Any) -> list[str | DgmarkError]:
    """Several texts without holes; in the place of anything else, the error that says why."""
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


def remask_steps(
    remasker: Remasker, request: Request, checker: TextChecker | None = None
) -> Generator[RemaskStep, None, Infilling]:
    """Mask and fill a share of the text of a request, of whose whole key the remasker is, and check it if there is a
    checker.

    Yields what each step did; see `infill`.
    """
    model = remasker.model
    ids, places, trace, remasking = yield from remasker.steps(request.prompt, request)
    holes, old = _runs(places), encode_text(model, remasking.original)
    edges = [0, *(edge for hole in holes for edge in hole), len(ids)]
    parts: list[str | int] = [
        high - low if index % 2 else added_text(model.tokenizer, old, low, high)
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
    """The settings of a decode of scattered words: those of a block are committed at once, as they are far apart."""
    by_quota = "commit" in settings or settings.get("strategy", "confidence") != "confidence"
    own = {} if by_quota else {"commit": "threshold", "threshold": 1e-6}
    return DecodeConfig.of(model, **{**own, **settings})


def _infilling(
    model: Denoiser,
    request: Request,
    text: HoledText,
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
        remasking=remasking,
        choices=trace.choices(),
        check=None if checker is None else checker(request.key, filled.text, only),
        **written_fields(model, request, settings_beside_holes(config.to_dict()), trace),
    )
