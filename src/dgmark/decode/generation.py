"""From prompts to texts: encoding, checks, batches, results."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import torch
from torch import Tensor

from dgmark.decode.canvas import Canvas, Progress, Response, Trace, collect
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.loop import decode_steps
from dgmark.decode.matching import KeyMatching
from dgmark.decode.scheme import Scheme
from dgmark.decode.steering import Steering
from dgmark.errors import EmptyInput, InputError, PromptTooLong, SettingsError
from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import Denoiser, device_of, dtype_of, name_of, pads_of
from dgmark.watermark.key import WatermarkKey

GENERATION_SCHEMA = 2

Prompt = str | list[int]


@dataclass(frozen=True)
class Generation:
    """One generated text and how it came about.

    Attributes:
        prompt: as given (text, or token ids).
        text: the response, special tokens left out.
        token_ids: the response's ids, up to and without the first end token.
        ended: whether there was an end token; otherwise the length ran out.
        seed: of this row alone: the same prompt and seed give the same row, whatever its neighbours.
        model: the model's name.
        dtype: number format of the forward; None if the model does not tell.
        key_fingerprint: names the key; None without a mark.
        settings: the decoding settings.
        trace: the commits in their order.
        chat: whether the prompt was put into the model's chat template.
        scheme: the name and options of a scheme other than dgMARK; None for dgMARK, or without a mark.
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
    scheme: dict[str, Any] | None = None

    def to_row(self, row_id: str, *, with_trace: bool = True) -> dict[str, Any]:
        """The generation as a JSON row; `trace` holds the step, position, token id, reward and match of each commit."""
        row: dict[str, Any] = {
            "id": row_id,
            "prompt": self.prompt,
            "chat": self.chat,
            "text": self.text,
            "token_ids": self.token_ids,
            "ended": self.ended,
            "model": self.model,
            "dtype": self.dtype,
            "seed": self.seed,
            "key_fingerprint": self.key_fingerprint,
            "scheme": self.scheme,
            "settings": self.settings,
            "schema": GENERATION_SCHEMA,
        }
        return {**row, "trace": asdict(self.trace)} if with_trace else row


def generate(
    model: Denoiser,
    prompts: str | Sequence[Prompt],
    *,
    key: WatermarkKey | None = None,
    scheme: Scheme | None = None,
    seed: int = 0,
    batch_size: int = 8,
    chat: bool = False,
    pad: bool | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> list[Generation]:
    """Generate one text a prompt, marked with `key`; without one, the same loop leaves no mark.

    Args:
        model: a loaded model.
        prompts: texts or lists of token ids; a single text is a list of one.
        key: must be bound to the model's tokenizer and vocabulary.
        scheme: another watermark than dgMARK, from `dgmark.lab.baselines.scheme`, in the same loop and under the same
            key.
        seed: row i uses seed + i.
        batch_size: most rows decoded at once.
        chat: take texts as messages to a chat model, and put them into its template.
        pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
        progress: told the number of committed tokens after each step.
        settings: `length`, `temperature`, `lookahead` and all others of `DecodeConfig`; what is left out is the
            scheme's default, the model's own, or that of `DecodeConfig`.

    Returns:
        Generations in the order of the prompts.

    Raises:
        SettingsError: settings that cannot be meant, or a prompt that does not fit the context.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    if batch_size < 1:
        raise SettingsError(f"batch size {batch_size} is less than 1")
    rows = [prompts] if isinstance(prompts, str) else list(prompts)
    config = config_of(model, scheme, settings)
    steering_of(model, key, scheme).check(config)
    for prompt in rows:  # all of them before the first is decoded
        encode_prompt(model, prompt, config.length, chat=chat)
    numbered = [(prompt, seed + index) for index, prompt in enumerate(rows)]
    return [
        generation
        for start in range(0, len(numbered), batch_size)
        for generation in generate_batch(
            model, numbered[start : start + batch_size], config, key, progress, scheme=scheme, chat=chat, pad=pad
        )
    ]


def generate_batch(
    model: Denoiser,
    prompts: Sequence[tuple[Prompt, int]],
    config: DecodeConfig,
    key: WatermarkKey | None = None,
    progress: Progress | None = None,
    *,
    scheme: Scheme | None = None,
    chat: bool = False,
    pad: bool | None = None,
) -> list[Generation]:
    """Generate one text for each (prompt, seed); arguments as of `generate`.

    Raises:
        SettingsError: a prompt does not fit the context.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    responses: dict[int, Response] = {}
    steering = steering_of(model, key, scheme)
    for rows, canvas in canvases(model, prompts, config, chat=chat, pad=pad):
        steps = decode_steps(model, canvas, config, steering, [prompts[row][1] for row in rows])
        responses.update(zip(rows, collect(model, canvas, steps, progress), strict=True))
    return [
        generation_of(model, prompt, seed, responses[row], config, key, scheme=scheme, chat=chat)
        for row, (prompt, seed) in enumerate(prompts)
    ]


def config_of(model: Denoiser, scheme: Scheme | None, settings: Settings) -> DecodeConfig:
    """The settings of a decode: what is given, else the scheme's defaults, else the model's.

    Raises:
        SettingsError: settings that cannot be meant.
    """
    defaults = dict(scheme.defaults) if scheme else {}
    return DecodeConfig.of(model, **{**defaults, **settings})


def steering_of(model: Denoiser, key: WatermarkKey | None, scheme: Scheme | None = None) -> Steering:
    """What steers the loop on this model: the scheme, the key's matching sets, or nothing.

    Raises:
        KeyFileError: the key is bound to another tokenizer or vocabulary.
        SettingsError: a scheme without a key, or with a key that it cannot use.
    """
    if key is None:
        if scheme is not None:
            raise SettingsError(f"scheme {scheme.name} needs a key; leave the scheme out for text without a mark")
        return Steering()
    key.check_model(model)
    if scheme is not None:
        return scheme.steering(key, model)
    return Steering(KeyMatching(key, device_of(model)))


def canvases(
    model: Denoiser, prompts: Sequence[tuple[Prompt, int]], config: DecodeConfig, *, chat: bool, pad: bool | None
) -> Iterator[tuple[list[int], Canvas]]:
    """The prompts as canvases, each with the indexes of its rows.

    Padding is computed like anything else, so on a CPU there is nothing to gain by it.
    """
    encoded = [encode_prompt(model, prompt, config.length, chat=chat) for prompt, _ in prompts]
    if pad is None:
        pad = pads_of(model) and device_of(model).type != "cpu"
    for rows in [list(range(len(encoded)))] if pad else _by_length(encoded):
        ids, padding = _left_padded([encoded[row] for row in rows], model)
        yield rows, Canvas.after(ids, config.length, model.mask_id, padding)


def encode_prompt(model: Denoiser, prompt: Prompt, length: int, *, chat: bool = False) -> list[int]:
    """Token ids of a prompt, or of a message in the model's chat template, that leaves room for `length` more.

    Raises:
        EmptyInput: the prompt has no token.
        InputError: an id that the model does not have.
        PromptTooLong: it leaves no such room.
    """
    if not isinstance(prompt, str | list):
        raise InputError(
            f"a prompt is a text or a list of token ids, not {prompt!r}; several prompts are a list of them"
        )
    if isinstance(prompt, str):
        ids = chat_prompt(model, prompt) if chat else model.tokenizer.encode(prompt)
    else:
        ids = prompt
    if not ids:
        raise EmptyInput("the prompt is empty: give the model at least one token to continue from")
    wrong = next((i for i in ids if not 0 <= i < model.vocab_size), None)
    if wrong is not None:
        raise InputError(f"prompt id {wrong} is not among the {model.vocab_size} ids of {name_of(model)}")
    if len(ids) + length > model.context_length:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens and the response {length}, but {name_of(model)} holds "
            f"{model.context_length} in all: shorten the prompt to {max(model.context_length - length, 0)} tokens or "
            "lower --length"
        )
    return ids


def _left_padded(prompts: list[list[int]], model: Denoiser) -> tuple[Tensor, Tensor]:
    """Prompts as one tensor, and how many columns of each row are padding (masks, which equal no candidate)."""
    longest = max(map(len, prompts))
    padding = torch.tensor([longest - len(ids) for ids in prompts], device=device_of(model))
    rows = [[model.mask_id] * (longest - len(ids)) + ids for ids in prompts]
    return torch.tensor(rows, dtype=torch.long, device=device_of(model)), padding


def _by_length(encoded: list[list[int]]) -> Iterator[list[int]]:
    """Rows with prompts of one length: decoded together they need no padding, which would touch their logits."""
    groups: dict[int, list[int]] = {}
    for row, ids in enumerate(encoded):
        groups.setdefault(len(ids), []).append(row)
    yield from groups.values()


def generation_of(
    model: Denoiser,
    prompt: Prompt,
    seed: int,
    response: Response,
    config: DecodeConfig,
    key: WatermarkKey | None,
    *,
    scheme: Scheme | None = None,
    chat: bool,
) -> Generation:
    """The result of one row."""
    return Generation(
        prompt=prompt,
        text=model.tokenizer.decode(response.token_ids),
        token_ids=response.token_ids,
        ended=response.ended,
        seed=seed,
        model=name_of(model),
        dtype=dtype_of(model),
        key_fingerprint=None if key is None else key.fingerprint,
        settings=config.to_dict(),
        trace=response.trace,
        chat=chat,
        scheme=recorded(scheme),
    )


def recorded(scheme: Scheme | None) -> dict[str, Any] | None:
    """A scheme as rows record it: its name and options; None for dgMARK, whose rows are older than schemes."""
    return None if scheme is None or scheme.name == "dgmark" else scheme.to_dict()
