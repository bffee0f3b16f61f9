"""From requests to canvases that are ready to decode: checked, encoded and given their rule, each once.

`generate`, `stream_generate`, `infill`, benchmarks and experiments all prepare their requests here.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from dgmark.arguments.checks import flag, shown
from dgmark.arguments.contents import content_of
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.marks.keyed_side import decode_side, side_of_rows
from dgmark.decode.marks.rules import DecodeSide
from dgmark.decode.steps.canvas import Canvas, Commits, Progress, Response, collect_steps, run_to_end
from dgmark.decode.steps.decoding import decode_steps
from dgmark.decode.steps.round_trip import RoundTrip
from dgmark.decode.texts.own_check import TextChecker
from dgmark.decode.texts.requests import Prompt, Request
from dgmark.errors import DgmarkError, InputError, ModelFault, PromptTooLong, SettingsError, each, without_errors
from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import Denoiser, check_model, encode_text, ids_of_no_text, traits_of
from dgmark.watermark.key import WatermarkKey, check_key

R = TypeVar("R")


class BatchKind(NamedTuple):
    """What decides which rows are decoded together.

    Attributes:
        layout: what all rows of a batch share.
        mark: what those with a mark share besides (the rule, and its `KeyedSide.kind`); None for a row without a mark.
    """

    layout: Hashable
    mark: Hashable


def batches_of(kinds: Sequence[BatchKind]) -> list[list[int]]:
    """Sort rows of these kinds into batches; each row is put into the first that takes it."""
    batches: list[list[int]] = []
    for row, (layout, mark) in enumerate(kinds):
        for batch in batches:
            others = [kinds[other] for other in batch]
            if all(layout == of and (mark == other or None in (mark, other)) for of, other in others):
                batch.append(row)
                break
        else:
            batches.append([row])
    return batches


@dataclass(frozen=True)
class Batch:
    """Rows that are decoded together: the numbers of their requests, their canvas on the model's device, a seed for
    each, and what the watermark does to a step.
    """

    rows: list[int]
    canvas: Canvas
    side: DecodeSide
    seeds: list[int]


@dataclass(frozen=True)
class Prepared:
    """Checked and encoded requests, with everything needed to decode them; see `of` for the settings.

    One batch may hold rows with different keys or sub-keys of one rule, as far as the rule allows (`KeyedSide.kind`),
    and rows without a mark.

    Attributes:
        requests: the rows to decode.
        canvases: the canvas of each request by its number; one row, on the CPU.
        refused: the error of each request that cannot be decoded, by its number; empty if `of` was strict.
    """

    model: Denoiser
    config: DecodeConfig
    requests: tuple[Request, ...]
    canvases: Mapping[int, Canvas] = field(repr=False)
    refused: Mapping[int, DgmarkError]
    chat: bool
    pad: bool
    batch_size: int
    checker: TextChecker | None = None

    @classmethod
    def of(
        cls,
        model: Denoiser,
        requests: Sequence[Request],
        settings: DecodeConfig | Settings,
        *,
        chat: bool = False,
        pad: bool | None = None,
        batch_size: int = 8,
        encode: Callable[[Any], Canvas] | None = None,
        strict: bool = True,
        checker: TextChecker | None = None,
    ) -> "Prepared":
        """Check and encode requests.

        Args:
            model: a loaded model.
            requests: the rows to decode.
            settings: the decoding settings; a setting that is left out has the default of the keys' rule, else the
                model's own, else that of `DecodeConfig`.
            chat: put texts into the model's chat template.
            pad: by default on accelerators, if the model can: on a CPU padding costs as much as other columns.
            batch_size: largest number of rows decoded at once.
            encode: makes the canvas of a request's prompt; by default the prompt is continued (`encode_prompt`).
            strict: raise the error of the first request that cannot be encoded; else such requests are `refused`.
            checker: checks each text that is written.

        Raises:
            SettingsError: a setting is invalid or leaves no mark, or a key is not a `WatermarkKey`.
            KeyFileError: a key is bound to another tokenizer or vocabulary.
            InputError: a prompt has no token, or an id that the model does not have.
            PromptTooLong: a prompt leaves no room for the response.
        """
        check_model(model)
        chat = flag("chat", chat)
        pad = None if pad is None else flag("pad", pad)
        if type(batch_size) is not int or batch_size < 1:
            raise SettingsError(f"batch size {shown(batch_size)} is not a whole number of at least 1")
        keys = {request.key for request in requests}
        config = settings if isinstance(settings, DecodeConfig) else config_of(model, keys, settings)
        for key in keys:
            check_marking(model, key, config)
        if encode is None:
            encode = partial(_canvas_after, model, config.length, chat=chat)
        encoded = each(encode, [request.prompt for request in requests])
        if strict:
            without_errors(encoded)
        canvases = {row: canvas for row, canvas in enumerate(encoded) if isinstance(canvas, Canvas)}
        refused = {row: error for row, error in enumerate(encoded) if isinstance(error, DgmarkError)}
        if pad is None:
            pad = traits_of(model).pads and traits_of(model).device.type != "cpu"
        return cls(model, config, tuple(requests), canvases, refused, chat, pad, batch_size, checker)

    @classmethod
    def joined(cls, several: "Sequence[Prepared]") -> "Prepared":
        """The requests of several, one after the other, which were prepared for one model with the same settings.

        Args:
            several: at least one, each without refused requests.
        """
        requests = [request for prepared in several for request in prepared.requests]
        canvases = [prepared.canvases[row] for prepared in several for row in range(len(prepared.requests))]
        return replace(several[0], requests=tuple(requests), canvases=dict(enumerate(canvases)))

    def chunks(self) -> Iterator[range]:
        """The numbers of the requests in order, at most `batch_size` at a time."""
        for start in range(0, len(self.requests), self.batch_size):
            yield range(start, min(start + self.batch_size, len(self.requests)))

    def batches(self, rows: Sequence[int]) -> Iterator[Batch]:
        """Sort these requests into batches of rows that can be decoded together; refused requests are left out."""
        accepted = [row for row in rows if row not in self.refused]
        for batch in batches_of([self.kind(row) for row in accepted]):
            members = [accepted[number] for number in batch]
            keys, device = [self.requests[row].key for row in members], traits_of(self.model).device
            side = side_of_rows(keys, device)
            canvas = Canvas.joined([self.canvases[row] for row in members], self.model.mask_id)
            yield Batch(members, canvas.to(device), side, [self.requests[row].seed for row in members])

    def steps(self, batch: Batch, dropped: Collection[int] = ()) -> Iterator[Commits]:
        """Decode a batch, and yield the commits of each step.

        Args:
            batch: one of `batches`.
            dropped: rows of the batch that get no further commits; see `decode_steps`.

        Raises:
            ModelFault: the model's logits are unusable; `rows` are the numbers of the requests concerned.
        """
        model = self.model
        round_trip = None
        if self.config.round_trip_check:
            round_trip = RoundTrip.of(model.tokenizer, model.mask_id, model.end_ids if batch.canvas.stops else ())
        try:
            yield from decode_steps(model, batch.canvas, self.config, batch.side, batch.seeds, round_trip, dropped)
        except ModelFault as fault:
            raise ModelFault(fault.problem, [batch.rows[row] for row in fault.rows]) from None

    def results(
        self,
        finish: Callable[[int, Response], R],
        rows: Sequence[int] | None = None,
        progress: Progress | None = None,
        *,
        strict: bool = True,
    ) -> list[R | DgmarkError]:
        """Decode requests, and give what `finish` makes of each; in place of one that was refused, its error.

        Args:
            finish: is given the number of a request and its response.
            rows: the numbers of the requests, which are decoded together; None for all, `batch_size` at a time.
            progress: called after each step with the number of tokens it committed.
            strict: raise the fault of a model, and what `finish` raises; else the requests at which the model fails
                have their fault, and the others are decoded again. One at no single request is raised all the same.
        """
        if rows is None:
            return [made for chunk in self.chunks() for made in self.results(finish, chunk, progress, strict=strict)]
        failed, responses = dict(self.refused), dict[int, Response]()
        while True:
            try:
                for batch in self.batches([row for row in rows if row not in failed]):
                    made = run_to_end(collect_steps(self.model, batch.canvas, self.steps(batch)), progress)
                    responses |= zip(batch.rows, made, strict=True)
                break
            except ModelFault as fault:
                if strict or not set(fault.rows) - failed.keys():
                    raise
                failed |= dict.fromkeys(fault.rows, fault)
        found = each(lambda row: finish(row, responses[row]), [failed.get(row, row) for row in rows])
        return [*without_errors(found)] if strict else found

    def kind(self, row: int) -> BatchKind:
        """What decides which rows a row is decoded together with: its layout, and its rule with what that asks for."""
        key, canvas = self.requests[row].key, self.canvases[row]
        layout = (None if self.pad else canvas.start, canvas.layout)
        return BatchKind(layout, None if key is None else (key.spec.rule, decode_side([key]).kind(key)))


def config_of(model: Denoiser, keys: Iterable[WatermarkKey | None], settings: Settings) -> DecodeConfig:
    """Complete settings with the defaults of the keys' rule, if they are of one, then with the model's own."""
    by_rule = {key.spec.rule: key for key in keys if key is not None}
    key = next(iter(by_rule.values())) if len(by_rule) == 1 else None
    return with_defaults_of_rule(key, settings, partial(DecodeConfig.of, model))


def with_defaults_of_rule(
    key: WatermarkKey | None, settings: Settings, make: Callable[..., DecodeConfig]
) -> DecodeConfig:
    """The config that `make` makes of settings and, where they leave one out, of the defaults of a key's rule.

    What the rule has no use for is refused first, before it fails to go with the rule's defaults.
    """
    if key is not None:
        decode_side([key]).refuse_unused(settings)
        settings = {**key.rule.settings, **settings}
    return make(**settings)


def check_marking(model: Denoiser, key: WatermarkKey | None, config: DecodeConfig) -> None:
    """Refuse a key that is not the model's, and settings under which it leaves no mark."""
    check_key(key, or_none=True)
    if key is not None:
        key.check_model(model)
        decode_side([key]).check_config_for(key, config)


def _canvas_after(model: Denoiser, length: int, prompt: Prompt, *, chat: bool) -> Canvas:
    ids = encode_prompt(model, prompt, length, chat=chat)
    return Canvas.after(torch.tensor([ids]), length, model.mask_id)


def encode_prompt(model: Denoiser, prompt: Prompt, length: int, *, chat: bool = False) -> list[int]:
    """Encode a prompt, or a message in the model's chat template, that leaves room for `length` more tokens."""
    content = content_of(prompt)
    if isinstance(content, str):
        ids = chat_prompt(model, content) if chat else encode_text(model, content)
    else:
        ids = content.tolist()
    if not ids:
        raise InputError("the prompt is empty: give the model at least one token to continue from")
    name = traits_of(model).name
    wrong = next((i for i in ids if not 0 <= i < model.vocab_size), None)
    if wrong is not None:
        raise InputError(
            f"prompt id {wrong} is not among the {model.vocab_size} ids of {name}: use the ids of its tokenizer"
        )
    asking = next((i for i in ids if i in ids_of_no_text(model)), None)
    if asking is not None:
        what = "fills" if asking == model.mask_id else "deletes or inserts"
        raise InputError(f"prompt id {asking} is no text: {name} {what} a token there; leave it out of the prompt")
    if len(ids) + length > model.context_length:
        room, advice = model.context_length - length, "ask for fewer (length, --length)"
        if room > 0:
            advice = f"shorten the prompt to {room} tokens or {advice}"
        elif len(ids) >= model.context_length:
            advice = f"shorten the prompt and {advice}"
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens and the response {length}, but {name} holds {model.context_length} in "
            f"all: {advice}"
        )
    return ids
