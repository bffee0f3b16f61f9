"""From prompts to texts: encoding, checks, batches, results."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Unpack

import torch

from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.loop import Progress, Response, Trace, decode
from dgmark.decode.matching import KeyMatching, Matching, everything
from dgmark.errors import EmptyInput, InputError, PromptTooLong, SettingsError
from dgmark.key import WatermarkKey
from dgmark.models.denoiser import Denoiser, device_of, dtype_of, name_of

GENERATION_SCHEMA = 1

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

    def to_row(self, row_id: str, *, with_trace: bool = True) -> dict[str, Any]:
        """The generation as a JSON row; `trace` holds the step, position, token id, reward and match of each commit."""
        row: dict[str, Any] = {
            "id": row_id,
            "prompt": self.prompt,
            "text": self.text,
            "token_ids": self.token_ids,
            "ended": self.ended,
            "model": self.model,
            "dtype": self.dtype,
            "seed": self.seed,
            "key_fingerprint": self.key_fingerprint,
            "settings": self.settings,
            "schema": GENERATION_SCHEMA,
        }
        return {**row, "trace": asdict(self.trace)} if with_trace else row


def generate(
    model: Denoiser,
    prompts: str | Sequence[Prompt],
    *,
    key: WatermarkKey | None = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> list[Generation]:
    """Generate one text a prompt, marked with `key`; without one, the same loop leaves no mark.

    Args:
        model: a loaded model.
        prompts: texts or lists of token ids; a single text is a list of one.
        key: must be bound to the model's tokenizer and vocabulary.
        seed: row i uses seed + i.
        batch_size: most rows decoded at once.
        progress: told the number of committed tokens after each step.
        settings: `length`, `temperature`, `lookahead` and all others of `DecodeConfig`; what is left out is the
            model's own default, or that of `DecodeConfig`.

    Returns:
        Generations in the order of the prompts.

    Raises:
        SettingsError: settings that cannot be meant, or a prompt that does not fit the context.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    if batch_size < 1:
        raise SettingsError(f"batch size {batch_size} is less than 1")
    rows = [prompts] if isinstance(prompts, str) else list(prompts)
    config = DecodeConfig.of(model, **settings)
    for prompt in rows:  # all of them before the first is decoded
        encode_prompt(model, prompt, config.length)
    numbered = [(prompt, seed + index) for index, prompt in enumerate(rows)]
    return [
        generation
        for start in range(0, len(numbered), batch_size)
        for generation in generate_batch(model, numbered[start : start + batch_size], config, key, progress)
    ]


def generate_batch(
    model: Denoiser,
    prompts: Sequence[tuple[Prompt, int]],
    config: DecodeConfig,
    key: WatermarkKey | None = None,
    progress: Progress | None = None,
) -> list[Generation]:
    """Generate one text for each (prompt, seed), those with prompts of one length together.

    Raises:
        SettingsError: a prompt does not fit the context.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    if key is not None:
        key.check_model(model)
    encoded = [encode_prompt(model, prompt, config.length) for prompt, _ in prompts]
    matching: Matching = everything if key is None else KeyMatching(key, device_of(model))
    responses: dict[int, Response] = {}
    for rows in _by_length(encoded):
        ids = torch.tensor([encoded[row] for row in rows], dtype=torch.long, device=device_of(model))
        decoded = decode(model, ids, config, matching, [prompts[row][1] for row in rows], progress)
        responses.update(zip(rows, decoded, strict=True))
    return [_generation(model, prompt, seed, responses[row], config, key) for row, (prompt, seed) in enumerate(prompts)]


def encode_prompt(model: Denoiser, prompt: Prompt, length: int) -> list[int]:
    """Token ids of a prompt that leaves room for `length` more.

    Raises:
        EmptyInput: the prompt has no token.
        InputError: an id that the model does not have.
        PromptTooLong: it leaves no such room.
    """
    if not isinstance(prompt, str | list):
        raise InputError(
            f"a prompt is a text or a list of token ids, not {prompt!r}; several prompts are a list of them"
        )
    ids = model.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
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


def _by_length(encoded: list[list[int]]) -> Iterator[list[int]]:
    """Rows with prompts of one length: decoded together they need no padding, which would touch their logits."""
    groups: dict[int, list[int]] = {}
    for row, ids in enumerate(encoded):
        groups.setdefault(len(ids), []).append(row)
    yield from groups.values()


def _generation(
    model: Denoiser, prompt: Prompt, seed: int, response: Response, config: DecodeConfig, key: WatermarkKey | None
) -> Generation:
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
    )
