"""From prompts to texts, at once or as a stream of events."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Unpack, overload

from dgmark.arguments.checks import Errors, flag, returns_errors
from dgmark.decode.steps.canvas import BatchEvents, BlockFinished, Committed, Completed, Response
from dgmark.decode.steps.settled import SettledBlocks
from dgmark.decode.texts.growing import GrowingText
from dgmark.decode.texts.prepared import Prepared
from dgmark.decode.texts.requests import AskedRows, Prompt, Prompts, RowArguments, prompts_or_errors
from dgmark.decode.texts.written import MarkTally, Written, written_fields
from dgmark.errors import DgmarkError, SettingsError, without_errors
from dgmark.models.denoiser import Denoiser

GENERATION_SCHEMA = 1
# the arguments of `generate` that `infill` has not
_OF_BATCHES = ("batch_size", "chat", "pad")


@dataclass(frozen=True, kw_only=True)
class Generation(Written):
    """One generated text, with everything that determined it; see `Written` for further fields.

    Attributes:
        prompt: the prompt (text, or token ids).
        ended: whether there was an end token; otherwise the response has the full length.
        chat: whether the prompt was put into the model's chat template.
        rule: the name of the key's rule; None without a mark.
    """

    prompt: Prompt
    ended: bool
    chat: bool = False
    rule: str | None = None

    def to_row(self, row_id: str, *, with_trace: bool = True) -> dict[str, Any]:
        """The generation as a JSON row; `trace` holds the step, position, token id, reward and match of each commit,
        and its operation in a text in which tokens were deleted or inserted.
        """
        names = ("prompt", "chat", "text", "token_ids", "ended", "model", "dtype", "seed", "key_fingerprint", "subkey")
        row = self._row_of(row_id, (*names, "rule"), GENERATION_SCHEMA)
        return {**row, "trace": self.trace.to_dict()} if flag("with_trace", with_trace) else row


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
    model: Denoiser, prompts: Prompts, *, errors: Errors = "raise", **arguments: Unpack[GenerateArguments]
) -> Sequence[Any]:
    """Generate one text for each prompt, marked with `key`; with None, the same loop leaves no mark.

    Args:
        model: a loaded model.
        prompts: texts or lists of token ids, as `Detector.detect_many` takes them; a single text is a list of one.
        errors: "return" gives the error of a row that cannot be written in the place of its text, and all others.
        arguments: these, and as further ones `length`, `temperature`, `lookahead` and all others of `DecodeConfig`; a
            setting that is left out has the default of the key's rule, else the model's own, else that of
            `DecodeConfig`.

            - key: a key for the model's tokenizer and vocabulary; None for text without a mark; or a list with one of
              these for each row. If it has sub-keys, each row is marked with another one, which the operating system
              draws: then only `subkey` or `ids` gives a text again.
            - subkey: the sub-key to mark all rows with instead, 0 to N - 1: their payload; or a list with that of each
              row.
            - seed (0): row i uses seed + i; or a list with the seed of each row.
            - ids: the ids of the rows, from which the seed of each row follows (by `seed`), and its sub-key
              (`subkey_of`): a row is written the same in any order, batch or repetition.
            - batch_size (8): largest number of rows decoded at once.
            - chat (False): treat texts as messages to a chat model, and put them into its template.
            - pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
            - check (False): look for the mark in each text as soon as it is written, as a checker with the same key
              would.
            - progress: called after each step with the number of tokens it committed.
            - config: all decoding settings at once, in place of single ones.

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
    strict, progress = not returns_errors(errors), arguments.get("progress")
    prepared = _prepared(model, prompts_or_errors(prompts), strict, arguments)
    made = prepared.results(partial(generation_of, prepared), progress=progress, strict=strict)
    MarkTally.of(text for text in made if isinstance(text, Generation)).warn()
    return made


def stream_generate(model: Denoiser, prompts: Prompts, **arguments: Unpack[GenerateArguments]) -> Iterator[Event]:
    """Generate step by step, with an event for each change; the same arguments as for `generate` give the same texts.

    With a key that has sub-keys, as new keys have, they do so if `subkey` or `ids` is given too.

    Invalid arguments raise what `generate` raises when `stream_generate` is called, not at the first event.

    Yields:
        A `Committed` for each step and row that the step changed; `BlockFinished` after the last step of a block;
        `RowFinished` as soon as a row is complete. Rows are numbered like the prompts.
    """
    return _warning_events(events_of(_streamed(model, prompts, arguments)))


def stream_text(model: Denoiser, prompt: Prompt, **arguments: Unpack[GenerateArguments]) -> Iterator[str]:
    """Generate one text piece by piece; the pieces together are the `text` that `generate` gives for this prompt.

    A diffusion model writes out of order: a piece is what became readable without a gap, so that it may hold nothing
    for a while and then several words. With edits a piece comes when its block is finished.

    Args:
        model: a loaded model.
        prompt: a text or a list of token ids.
        arguments: see `generate`; invalid ones raise what it raises, at the call.

    Yields:
        Strings that are not empty.
    """
    prepared = _streamed(model, [prompt], arguments)
    events: Iterator[Event] = SettledBlocks(prepared.config.inserts).of(_warning_events(events_of(prepared)))
    return _pieces(events, GrowingText(model, prepared.config))


def _pieces(events: Iterator[Event], growing: GrowingText) -> Iterator[str]:
    for event in events:
        if isinstance(event, RowFinished):
            piece = event.generation.text.removeprefix(growing.text)
        else:
            if isinstance(event, Committed):
                growing.commit(event)
            else:
                growing.settle()
            piece = growing.read_on()
        if piece:
            yield piece


def _streamed(model: Denoiser, prompts: Prompts, arguments: GenerateArguments) -> Prepared:
    """The rows of a stream, of which none may be wrong."""
    if "progress" in arguments:
        raise SettingsError("a stream yields something for each step: leave progress out")
    return _prepared(model, without_errors(prompts_or_errors(prompts)), True, arguments)


def _prepared(model: Denoiser, prompts: Sequence[Any], strict: bool, arguments: GenerateArguments) -> Prepared:
    """Check the arguments of `generate`, and prepare its rows."""
    own: dict[str, Any] = {name: value for name, value in arguments.items() if name in _OF_BATCHES}
    asked = AskedRows(model, **{name: value for name, value in arguments.items() if name not in own})
    return Prepared.of(model, asked.requests(prompts), asked.settings, strict=strict, checker=asked.checker, **own)


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


def generations(prepared: Prepared, rows: Sequence[int]) -> list[Generation]:
    """Decode these of the prepared requests together, in this order; the error of one of them is raised."""
    return without_errors(prepared.results(partial(generation_of, prepared), rows))


def generation_of(prepared: Prepared, row: int, response: Response) -> Generation:
    """The result of one prepared request, checked if its requests are."""
    request = prepared.requests[row]
    text = prepared.model.tokenizer.decode(response.token_ids)
    return Generation(
        prompt=request.prompt,
        text=text,
        token_ids=response.token_ids,
        ended=response.ended,
        chat=prepared.chat,
        rule=None if request.key is None else request.key.spec.rule,
        choices=response.trace.choices(len(response.token_ids)),
        check=None if prepared.checker is None else prepared.checker(request.key, text),
        **written_fields(prepared.model, request, prepared.config.to_dict(), response.trace),
    )
