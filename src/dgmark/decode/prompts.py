"""From prompts to canvases that are ready to decode: checked, encoded and given their rule, each once.

`generate`, `stream_generate`, `infill`, benchmarks and experiments all prepare their prompts here.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Required

import numpy as np
import torch

from dgmark.arguments.checks import flag, is_of, several, shown
from dgmark.arguments.contents import TextOrIds, as_text, content_of, contents_or_errors, id_of_row
from dgmark.decode.canvas import Canvas, Commits, Progress
from dgmark.decode.config import DecodeConfig, DecodeSettings, Settings
from dgmark.decode.draws import check_seed
from dgmark.decode.keyed_side import kind_of, side_of_rows
from dgmark.decode.loop import decode_steps
from dgmark.decode.own_check import TextChecker
from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.rules import DecodeSide
from dgmark.errors import DgmarkError, InputError, ModelFault, PromptTooLong, SettingsError, without_errors
from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import Denoiser, Traits, check_model, traits_of
from dgmark.watermark.key import WatermarkKey, check_key, subkey_of

Prompt = str | list[int]
# what `prompts_of` takes: a text, or several texts and lists of token ids
Prompts = str | Iterable[TextOrIds]
# the key of all rows, or of each; None for no mark
KeyOfEach = WatermarkKey | None | Sequence[WatermarkKey | None]


class RowArguments(DecodeSettings, total=False):
    """The keyword arguments of all functions that write texts; see `generate`."""

    key: Required[KeyOfEach]
    subkey: int | Sequence[int | None] | None
    seed: int | Sequence[int]
    ids: Iterable[str | int] | None
    check: bool
    progress: Progress | None
    config: DecodeConfig | None


def seed_of(seed: Any, row_id: str) -> int:
    """The seed of a row, from its id: 63 bits of SHA-256 over (version, seed, id).

    The same id and seed give the same number for ever, whatever the order of the rows and the others of their batch.

    Raises:
        SettingsError: the seed is no whole number of 64 bits.
    """
    check_seed(seed)
    message = f"dgmark/row-seed/v1\0{seed}\0{row_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(message).digest()[:8], "little") >> 1


def check_progress(progress: object) -> None:
    """Refuse what cannot be called after a step.

    Raises:
        SettingsError: it is not callable, and not None.
    """
    if progress is not None and not callable(progress):
        raise SettingsError(f"progress is a function of a number of tokens, not a {type(progress).__name__}")


@dataclass(frozen=True)
class Request:
    """One row to decode.

    Attributes:
        prompt: a text, or token ids; for an infilling, the encoded text with its holes; or the error of the row.
        seed: seed of this row: its text depends on no other row.
        key: the key to mark with; None for no mark. In place of a key with sub-keys it is one of them: the given one,
            or one that the operating system draws for this row, whatever its seed and prompt.
    """

    prompt: Any
    seed: int
    key: WatermarkKey | None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        object.__setattr__(self, "key", key_of_text(self.key))

    @property
    def subkey(self) -> int | None:
        """The number of the sub-key; None without one."""
        return None if self.key is None else self.key.number


def key_of_text(key: WatermarkKey | None, subkey: int | None = None) -> WatermarkKey | None:
    """The key that marks one text, see `WatermarkKey.for_text`; None for text without a mark.

    Raises:
        SettingsError: there is no such sub-key, or this is no key.
    """
    check_key(key, or_none=True)
    if key is not None:
        return key.for_text(subkey)
    if subkey is not None:
        raise SettingsError("a text without a mark has no sub-key: give a key, or leave the sub-key out")
    return None


class BatchKind(NamedTuple):
    """What decides which rows are decoded together.

    Attributes:
        layout: what all rows of a batch share.
        mark: what those with a mark share besides (`KeyedSide.kind`); None for a row without a mark.
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
    """Rows that are decoded together.

    Attributes:
        rows: the number of each row's request.
        canvas: their canvas, on the model's device.
        side: what the watermark does to a step.
        seeds: one for each row.
    """

    rows: list[int]
    canvas: Canvas
    side: DecodeSide
    seeds: list[int]


@dataclass(frozen=True)
class Prepared:
    """Checked and encoded requests, with everything needed to decode them.

    One batch may hold rows with different keys or sub-keys of one rule, as far as the rule allows (`KeyedSide.kind`),
    and rows without a mark.

    Attributes:
        model: the model.
        traits: its traits.
        config: the decoding settings.
        requests: the rows to decode.
        canvases: the canvas of each request by its number; one row, on the CPU.
        refused: the error of each request that cannot be decoded, by its number; empty if `of` was strict.
        chat: whether prompts were put into the model's chat template.
        pad: whether rows with prompts of different lengths are decoded together.
        batch_size: largest number of rows decoded at once.
        checker: checks each text that is written; None to check none.
    """

    model: Denoiser
    traits: Traits
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
            pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
                On a CPU nothing is gained, because padding costs as much as other columns.
            batch_size: largest number of rows decoded at once.
            encode: makes the canvas of a request's prompt; by default the prompt is continued (`encode_prompt`).
            strict: raise the error of the first request that cannot be encoded; else such requests are `refused`.
            checker: checks each text that is written.

        Raises:
            SettingsError: a setting is invalid or leaves no mark, or a key is no `WatermarkKey`.
            KeyFileError: a key is bound to another tokenizer or vocabulary.
            InputError: a prompt has no token.
            InputError: a prompt has an id that the model does not have.
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

            def encode(prompt: Any) -> Canvas:
                ids = encode_prompt(model, prompt, config.length, chat=chat)
                return Canvas.after(torch.tensor([ids]), config.length, model.mask_id)

        canvases, refused = _encode(requests, encode, strict=strict)
        traits = traits_of(model)
        return cls(
            model=model,
            traits=traits,
            config=config,
            requests=tuple(requests),
            canvases=canvases,
            refused=refused,
            chat=chat,
            pad=traits.pads and traits.device.type != "cpu" if pad is None else pad,
            batch_size=batch_size,
            checker=checker,
        )

    @classmethod
    def joined(cls, several: "Sequence[Prepared]") -> "Prepared":
        """The requests of several, one after the other, which were prepared for one model with the same settings.

        Args:
            several: at least one, each without refused requests.
        """
        requests = [request for one in several for request in one.requests]
        canvases = [one.canvases[row] for one in several for row in range(len(one.requests))]
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
            keys, device = [self.requests[row].key for row in members], self.traits.device
            side = side_of_rows(keys, device)
            canvas = Canvas.joined([self.canvases[row] for row in members], self.model.mask_id)
            yield Batch(members, canvas.to(device), side, [self.requests[row].seed for row in members])

    def steps(self, batch: Batch, dropped: Collection[int] = ()) -> Iterator[Commits]:
        """Decode a batch, and yield the commits of each step.

        Args:
            batch: one of `batches`.
            dropped: rows of the batch that nobody wants any more; see `decode_steps`.

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

    def kind(self, row: int) -> BatchKind:
        """What decides which rows a row is decoded together with: its layout, and its mark."""
        key, canvas = self.requests[row].key, self.canvases[row]
        layout = (None if self.pad else canvas.start, canvas.layout)
        return BatchKind(layout, None if key is None else kind_of(key))


def prompts_of(prompts: Any) -> list[Prompt]:
    """One text, or several texts and lists of token ids, as a list of prompts.

    Raises:
        SettingsError: they are neither.
    """
    return without_errors(prompts_or_errors(prompts))


def prompts_or_errors(prompts: Any) -> list[Prompt | DgmarkError]:
    """What `prompts_of` gives; in the place of what is neither a text nor ids, the error that says why.

    Raises:
        SettingsError: they are not several prompts.
    """
    text = as_text(prompts)
    contents = contents_or_errors(prompts) if text is None else [text]
    return [one.tolist() if isinstance(one, np.ndarray) else one for one in contents]


def requests_of(
    prompts: Sequence[Any],
    key: KeyOfEach,
    seed: int | Sequence[int],
    subkey: int | Sequence[int | None] | None = None,
    ids: Iterable[str | int] | None = None,
) -> list[Request]:
    """Make a request for each prompt.

    Args:
        prompts: the prompts; an error in the place of one is that of the row.
        key: the key of all rows, or a list with that of each; None for no mark.
        seed: row i has seed + i, or the one of a list; with ids, the seed that they are hashed with.
        subkey: the sub-key of all rows, or a list with that of each; None for one that the operating system draws for
            the row or, with ids, for the one that belongs to its id.
        ids: the rows' ids, from which their seeds (`seed_of`) and sub-keys (`subkey_of`) follow.

    Raises:
        SettingsError: a seed is no whole number of 64 bits, there is no such sub-key or key, or a list is of another
            length than the prompts.
        InputError: two rows have the same id.
    """
    number = len(prompts)
    keys, subkeys = _of_rows(key, number, "key"), _of_rows(subkey, number, "subkey")
    if ids is None:
        first = check_seed(0 if _is_list(seed) else seed)
        seeds = _of_rows(seed, number, "seed") if _is_list(seed) else [first + row for row in range(number)]
    else:
        names = row_ids(ids, number)
        seeds = [seed_of(seed, name) for name in names]
        subkeys = list(map(_subkey_of_id, keys, subkeys, names))
    rows = zip(prompts, seeds, keys, subkeys, strict=True)
    return [Request(prompt, row_seed, key_of_text(*marked)) for prompt, row_seed, *marked in rows]


def row_ids(ids: Iterable[str | int], number: int) -> list[str]:
    """The ids of rows as texts; whole numbers are spelled in digits.

    Raises:
        SettingsError: one is neither a text nor a whole number, or they are not as many as the rows.
        InputError: two are equal.
    """
    names = []
    for place, one in enumerate(_of_rows(several(ids, "ids"), number, "ids")):
        name = id_of_row(one)
        if name is None:
            raise SettingsError(f"id {place} (counted from 0) is {shown(one)}: give each row a text or a whole number")
        names.append(name)
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{count} rows have the id {shown(name)}: give each row its own id")
    return names


def _subkey_of_id(key: WatermarkKey | None, subkey: int | None, row_id: str) -> int | None:
    """The given sub-key of a row, or the one that belongs to its id."""
    check_key(key, or_none=True)
    if subkey is not None or key is None or key.num_subkeys == 1:
        return subkey
    return subkey_of(key, row_id)


def _is_list(value: object) -> bool:
    return is_of(value, list, tuple)


def _of_rows(value: Any, number: int, name: str) -> list[Any]:
    """One value for each row: those of a list, or the same for all.

    Raises:
        SettingsError: a list has more or fewer items than there are rows.
    """
    if not _is_list(value):
        return [value] * number
    if len(value) != number:
        raise SettingsError(f"{name} is a list of {len(value)} for {number} rows: give one for each row")
    return [*value]


def config_of(model: Denoiser, keys: Iterable[WatermarkKey | None], settings: Settings) -> DecodeConfig:
    """Complete settings with the defaults of the keys' rule, if they are of one, then with the model's own.

    Raises:
        SettingsError: a setting is invalid.
    """
    by_rule = {key.spec.rule: key for key in keys if key is not None}
    key = next(iter(by_rule.values())) if len(by_rule) == 1 else None
    return with_defaults_of_rule(key, settings, partial(DecodeConfig.of, model))


def with_defaults_of_rule(
    key: WatermarkKey | None, settings: Settings, make: Callable[..., DecodeConfig]
) -> DecodeConfig:
    """The config of settings and, where they leave one out, the defaults of a key's rule.

    Where the two do not go together, what the rule has no use for is refused first: whoever changed another setting
    would meet that refusal next.

    Args:
        key: the key; None for text without a mark.
        settings: the settings.
        make: makes a config of all settings.

    Raises:
        SettingsError: a setting is invalid, or the rule refuses it.
    """
    if key is None:
        return make(**settings)
    try:
        return make(**{**key.rule.settings, **settings})
    except SettingsError:
        if key.rule.settings:
            side_of_rows([key.for_text()], "cpu").check(make(**settings))
        raise


def check_marking(model: Denoiser, key: WatermarkKey | None, config: DecodeConfig) -> None:
    """Refuse a key that is not the model's, and settings under which it leaves no mark.

    Raises:
        KeyFileError: the key is bound to another tokenizer or vocabulary.
        SettingsError: the key is no `WatermarkKey`, or its rule refuses a setting or the key.
    """
    check_key(key, or_none=True)
    if key is not None:
        key.check_model(model)
        side_of_rows([key.for_text()], "cpu").check(config)


def encode_prompt(model: Denoiser, prompt: Prompt, length: int, *, chat: bool = False) -> list[int]:
    """Encode a prompt, or a message in the model's chat template, that leaves room for `length` more tokens.

    Raises:
        SettingsError: the prompt is neither a text nor token ids.
        InputError: the prompt has no token.
        InputError: the prompt has an id that the model does not have.
        PromptTooLong: the prompt leaves no room for `length` tokens.
    """
    content = content_of(prompt)
    if isinstance(content, str):
        ids = chat_prompt(model, content) if chat else model.tokenizer.encode(content)
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


def _encode(
    requests: Sequence[Request], encode: Callable[[Any], Canvas], *, strict: bool
) -> tuple[dict[int, Canvas], dict[int, DgmarkError]]:
    """The canvas of each request by its number, and the error of each request that has no canvas."""
    canvases: dict[int, Canvas] = {}
    refused: dict[int, DgmarkError] = {}
    for row, request in enumerate(requests):
        try:
            if isinstance(request.prompt, DgmarkError):
                raise request.prompt
            canvases[row] = encode(request.prompt)
        except DgmarkError as error:
            if strict:
                raise
            refused[row] = error
    return canvases, refused
