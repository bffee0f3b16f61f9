"""From prompts to texts, at once or as a stream of events, and the row of output of each text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Unpack, overload

from dgmark.arguments.checks import Errors, flag, returns_errors
from dgmark.decode.canvas import BatchEvents, BlockFinished, Committed, Completed, Progress, Response, Trace, collect
from dgmark.decode.config import DecodeConfig, DecodeSettings, settings_of
from dgmark.decode.own_check import Check, MarkTally, checker_of
from dgmark.decode.prompts import (
    KeyOfEach,
    Prepared,
    Prompt,
    Prompts,
    RowArguments,
    check_progress,
    prompts_of,
    prompts_or_errors,
    requests_of,
)
from dgmark.errors import DgmarkError, ModelFault
from dgmark.models.denoiser import Denoiser

GENERATION_SCHEMA = 1


@dataclass(frozen=True)
class Generation:
    """One generated text, with everything that determined it.

    Attributes:
        prompt: the prompt (text, or token ids).
        text: the response, without special tokens.
        token_ids: the response's ids before the first end token.
        ended: whether there was an end token; otherwise the response has the full length.
        seed: seed of this row: the same prompt, seed and sub-key give the same row, whatever its neighbours.
        model: the model's name.
        dtype: number format of the forward; None if the model does not state it.
        key_fingerprint: fingerprint of the key; None without a mark.
        settings: the decoding settings.
        trace: the commits in the order they were made.
        chat: whether the prompt was put into the model's chat template.
        rule: the name of the key's rule; None without a mark.
        subkey: the number of the sub-key that the text is marked with; None for a key without sub-keys.
        choices: how many of the tokens had a choice, which is where a mark can be (`Trace`).
        check: what a checker with the same key finds in the text; None if it was not checked.
    """

    prompt: Prompt
    text: str
    token_ids: list[int]
    ended: bool
    seed: int
    model: str
    dtype: str | None
    key_fingerprint: str | None
    settings: dict[str, Any]
    trace: Trace
    chat: bool = False
    rule: str | None = None
    subkey: int | None = None
    choices: int = 0
    check: Check | None = None

    def to_row(self, row_id: str, *, with_trace: bool = True) -> dict[str, Any]:
        """The generation as a JSON row; `trace` holds the step, position, token id, reward and match of each commit."""
        names = ("prompt", "chat", "text", "token_ids", "ended", "model", "dtype", "seed", "key_fingerprint", "subkey")
        row = {"id": row_id} | {name: getattr(self, name) for name in (*names, "rule", "choices", "settings")}
        row |= {} if self.check is None else {"check": asdict(self.check)}
        row["schema"] = GENERATION_SCHEMA
        return {**row, "trace": asdict(self.trace)} if flag("with_trace", with_trace) else row


@dataclass(frozen=True)
class RowFinished:
    """A row is complete."""

    row: int
    generation: Generation


Event = Committed | BlockFinished | RowFinished


class GenerateArguments(RowArguments, total=False):
    """The keyword arguments of `generate`, for type checkers."""

    batch_size: int
    chat: bool
    pad: bool | None


@overload
def generate(
    model: Denoiser, prompts: Prompts, *, errors: Literal["raise"] = "raise", **arguments: Unpack[GenerateArguments]
) -> list[Generation]: ...


@overload
def generate(
    model: Denoiser, prompts: Prompts, *, errors: Literal["return"], **arguments: Unpack[GenerateArguments]
) -> list[Generation | DgmarkError]: ...


def generate(
    model: Denoiser,
    prompts: Prompts,
    *,
    key: KeyOfEach,
    subkey: int | Sequence[int | None] | None = None,
    seed: int | Sequence[int] = 0,
    ids: Iterable[str | int] | None = None,
    batch_size: int = 8,
    chat: bool = False,
    pad: bool | None = None,
    check: bool = False,
    progress: Progress | None = None,
    errors: Errors = "raise",
    config: DecodeConfig | None = None,
    **settings: Unpack[DecodeSettings],
) -> Sequence[Any]:
    """Generate one text for each prompt, marked with `key`; with None, the same loop leaves no mark.

    Args:
        model: a loaded model.
        prompts: texts or lists of token ids, as `Detector.detect_many` takes them; a single text is a list of one.
        key: a key for the model's tokenizer and vocabulary; None for text without a mark; or a list with one of these
            for each row. If it has sub-keys, each row is marked with another one, which the operating system draws:
            then only `subkey` or `ids` gives a text again.
        subkey: the sub-key to mark all rows with instead, 0 to N - 1: their payload; or a list with that of each row.
        seed: row i uses seed + i; or a list with the seed of each row.
        ids: the ids of the rows, from which the seed of each row follows (by `seed`), and its sub-key (`subkey_of`): a
            row is written the same in any order, batch or repetition.
        batch_size: largest number of rows decoded at once.
        chat: treat texts as messages to a chat model, and put them into its template.
        pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
        check: look for the mark in each text as soon as it is written, as a checker with the same key would.
        progress: called after each step with the number of tokens it committed.
        errors: "return" gives the error of a row that cannot be written in the place of its text, and all others.
        config: all decoding settings at once, in place of `settings`.
        settings: `length`, `temperature`, `lookahead` and all others of `DecodeConfig`; a setting that is left out
            has the default of the key's rule, else the model's own, else that of `DecodeConfig`.

    Returns:
        Generations in the order of the prompts.

    Warns:
        MarkWarning: once, if no text bears a mark because no token had a choice, or if a check does not find a text.

    Raises:
        SettingsError: a setting is invalid or leaves no mark, a prompt does not fit the context, the key is no
            `WatermarkKey`, it has no such sub-key, a prompt is neither a text nor token ids, a list has not one item
            for each row, or there is no key to check with.
        InputError: a prompt is empty, or has an id that the model does not have; or two rows have the same id.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    check_progress(progress)
    strict = not returns_errors(errors)
    requests = requests_of(prompts_or_errors(prompts), key, seed, subkey, ids)
    prepared = Prepared.of(
        model,
        requests,
        settings_of(config, settings),
        chat=chat,
        pad=pad,
        batch_size=batch_size,
        strict=strict,
        checker=checker_of(model, key, check),
    )
    write = generations if strict else generations_or_errors
    made = [generation for rows in prepared.chunks() for generation in write(prepared, rows, progress)]
    MarkTally.of(one for one in made if isinstance(one, Generation)).warn()
    return made


def stream_generate(
    model: Denoiser,
    prompts: Prompts,
    *,
    key: KeyOfEach,
    subkey: int | Sequence[int | None] | None = None,
    seed: int | Sequence[int] = 0,
    ids: Iterable[str | int] | None = None,
    batch_size: int = 8,
    chat: bool = False,
    pad: bool | None = None,
    check: bool = False,
    config: DecodeConfig | None = None,
    **settings: Unpack[DecodeSettings],
) -> Iterator[Event]:
    """Generate step by step, with an event for each change; the same arguments as for `generate` give the same texts.

    With a key that has sub-keys, as new keys have, they do so if `subkey` or `ids` is given too.

    Invalid arguments raise when `stream_generate` is called, not at the first event.

    Yields:
        A `Committed` for each step and row that the step changed; `BlockFinished` after the last step of a block;
        `RowFinished` as soon as a row is complete. Rows are numbered like the prompts.

    Raises:
        SettingsError: see `generate`.
        KeyFileError: see `generate`.
    """
    requests = requests_of(prompts_of(prompts), key, seed, subkey, ids)
    asked, checker = settings_of(config, settings), checker_of(model, key, check)
    prepared = Prepared.of(model, requests, asked, chat=chat, pad=pad, batch_size=batch_size, checker=checker)
    return _warning_events(events_of(prepared))


def _warning_events(events: Iterator[Event]) -> Iterator[Event]:
    """These events, and after the last one a warning of texts that bear no mark."""
    tally = MarkTally()
    for event in events:
        if isinstance(event, RowFinished):
            tally.add(event.generation)
        yield event
    tally.warn()


def events_of(prepared: Prepared) -> Iterator[Event]:
    """Decode prepared prompts, event by event; see `stream_generate`."""
    for rows in prepared.chunks():
        for batch in prepared.batches(rows):
            events = BatchEvents(batch.canvas, batch.rows, prepared.model.end_ids)
            for commits in prepared.steps(batch):
                for event in events.of(commits):
                    if isinstance(event, Completed):
                        yield RowFinished(event.row, generation_of(prepared, event.row, event.response))
                    else:
                        yield event


def responses_of(prepared: Prepared, rows: Sequence[int], progress: Progress | None = None) -> dict[int, Response]:
    """Decode these of the prepared requests; refused requests are left out."""
    responses: dict[int, Response] = {}
    for batch in prepared.batches(rows):
        made = collect(prepared.model, batch.canvas, prepared.steps(batch), progress)
        responses.update(zip(batch.rows, made, strict=True))
    return responses


def generations(prepared: Prepared, rows: Sequence[int], progress: Progress | None = None) -> list[Generation]:
    """Decode these of the prepared requests, in this order; refused requests are left out."""
    responses = responses_of(prepared, rows, progress)
    return [generation_of(prepared, row, responses[row]) for row in rows if row in responses]


def generations_or_errors(
    prepared: Prepared, rows: Sequence[int], progress: Progress | None = None
) -> list[Generation | DgmarkError]:
    """Decode these of the prepared requests, in this order; in place of one that cannot be decoded, its error.

    Requests at which the model fails are left out, and the others decoded again without them.
    """
    failed: dict[int, DgmarkError] = dict(prepared.refused)
    while True:
        try:
            made = iter(generations(prepared, [row for row in rows if row not in failed], progress))
            return [failed[row] if row in failed else next(made) for row in rows]
        except ModelFault as fault:
            if not set(fault.rows) - failed.keys():
                raise
            failed |= dict.fromkeys(fault.rows, fault)


def generation_of(prepared: Prepared, row: int, response: Response) -> Generation:
    """The result of one prepared request, checked if its requests are."""
    request, traits = prepared.requests[row], prepared.traits
    text = prepared.model.tokenizer.decode(response.token_ids)
    return Generation(
        prompt=request.prompt,
        text=text,
        token_ids=response.token_ids,
        ended=response.ended,
        seed=request.seed,
        model=traits.name,
        dtype=traits.number_format,
        key_fingerprint=None if request.key is None else request.key.fingerprint,
        settings=prepared.config.to_dict(),
        trace=response.trace,
        chat=prepared.chat,
        rule=None if request.key is None else request.key.spec.rule,
        subkey=request.subkey,
        choices=response.trace.choices(len(response.token_ids)),
        check=None if prepared.checker is None else prepared.checker(request.key, text),
    )
