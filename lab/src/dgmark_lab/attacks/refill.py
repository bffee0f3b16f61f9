"""Mask and refill: a share of the tokens is masked again, and a diffusion model rewrites it without a mark.

This is the natural attack on marks of this family: it takes any dLLM, even a small one, and neither key nor prompt.
"""

import re
from dataclasses import field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from pydantic import field_validator
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.checkpoint.folder import BUILTIN
from dgmark.decode import Canvas, DecodeConfig, Prepared, Request
from dgmark.decode.steps.canvas import collect
from dgmark.errors import InputError, PromptTooLong
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.models.load import load_model
from dgmark_lab.attacks.budgets import Share, places
from dgmark_lab.attacks.text_edits import ARBITRARY, decode
from dgmark_lab.options import Options


@dataclass(frozen=True, config=ARBITRARY)
class Refill:
    """Mask a share of the tokens or words and decode them again with a dLLM, without a mark.

    Attributes:
        budget: share that is masked, exactly round(budget * n) tokens or words; the model may write the same again.
        holes: "tokens", or "words" (the characters between spaces), each written anew with as many tokens as it had.
        model: a loaded model, or its name, folder or hub id; its tokenizer counts the tokens.
        settings: of `DecodeConfig`, except length (strategy, temperature, block_length, steps for each block, ...).
    """

    budget: Share = 0.3
    holes: Literal["tokens", "words"] = "tokens"
    model: Any = BUILTIN
    settings: Options = field(default_factory=dict)

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if "length" in settings:
            raise ValueError("refilling takes no length, because the budget sets the number of tokens")
        return settings

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Rewrite a share of the text's tokens; all others stay."""
        text = text_of(text)
        model = load_once(self.model) if isinstance(self.model, str) else self.model
        encoded = model.tokenizer.encode_with_offsets(text)
        if self.holes == "words":
            masked = tokens_of_words(text, encoded.offsets, self.budget, rng)
        else:
            masked = places(len(encoded.ids), self.budget, rng)
        if not masked:
            return text
        return decode(model.tokenizer, refill_ids(model, encoded.ids, masked, int(rng.integers(2**31)), self.settings))


def tokens_of_words(text: str, offsets: list[tuple[int, int]], budget: float, rng: np.random.Generator) -> list[int]:
    """Choose round(budget * words) words, and return the tokens that hold any of their characters."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    chosen = np.zeros(len(text), bool)
    for place in places(len(words), budget, rng):
        chosen[slice(*words[place])] = True
    return [token for token, (begin, end) in enumerate(offsets) if chosen[begin:end].any()]


def refill_ids(
    model: Denoiser, ids: list[int], masked: list[int], seed: int, settings: dict[str, Any] | None = None
) -> list[int]:
    """Decode the places `masked` (ascending, not empty) of `ids` anew.

    Raises:
        InputError: no token would be left unmasked.
        PromptTooLong: the text does not fit the model's context.
        SettingsError: a setting is invalid.
    """
    if len(masked) == len(ids):
        raise InputError("every token would be masked, and the model has nothing to go by: choose a smaller budget")
    if len(ids) > model.context_length:
        raise PromptTooLong(
            f"the text has {len(ids)} tokens, but {traits_of(model).name} holds {model.context_length}: shorten it"
        )
    config = DecodeConfig.of(model, **settings or {})
    canvas = Canvas.with_holes(ids, masked, model.mask_id)
    prepared = Prepared.of(model, [Request(canvas, seed, None)], config, encode=lambda canvas: canvas)
    (batch,) = prepared.batches([0])
    (response,) = collect(model, batch.canvas, prepared.steps(batch))
    return ids[: canvas.start] + response.token_ids + ids[masked[-1] + 1 :]


# the model loaded last is kept
load_once = lru_cache(maxsize=1)(load_model)
