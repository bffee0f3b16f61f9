"""Mask and refill: a share of the tokens is masked again, and a diffusion model rewrites it without a mark.

This is the natural attack on marks of this family: it takes any dLLM, even a small one, and neither key nor prompt.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dgmark.checkpoint.folder import BUILTIN
from dgmark.errors import InputError, MissingExtra, PromptTooLong, SettingsError, install_hint
from dgmark_lab.attacks.edits import check_share, edit_count, places
from dgmark_lab.attacks.units import decode

if TYPE_CHECKING:
    from dgmark.models.denoiser import Denoiser

HOLES = ("random", "contiguous")


@dataclass(frozen=True)
class Refill:
    """Mask a share of the tokens and decode them again with a dLLM, without a mark.

    Attributes:
        budget: share of the tokens that is masked, exactly round(budget * n); the model may write the same tokens
            again.
        holes: "random" tokens, or one "contiguous" stretch.
        model: a loaded model, or its name, folder or hub id; its tokenizer counts the tokens.
        settings: of `DecodeConfig`, except length and steps (block_length, strategy, temperature, ...).
    """

    budget: float = 0.3
    holes: str = "random"
    model: "str | Denoiser" = BUILTIN
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_share("budget", self.budget)
        if self.holes not in HOLES:
            raise SettingsError(f"holes {self.holes!r} is not one of: {', '.join(HOLES)}")
        for name in ("length", "steps"):
            if name in self.settings:
                raise SettingsError(
                    f"refilling takes no {name}, because the budget sets the number of tokens: leave it out"
                )

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Rewrite a share of the text's tokens; all others stay."""
        model = load(self.model) if isinstance(self.model, str) else self.model
        ids = model.tokenizer.encode(text)
        masked = masked_places(len(ids), self.budget, self.holes, rng)
        if not masked:
            return text
        return decode(model.tokenizer, refill_ids(model, ids, masked, int(rng.integers(2**31)), self.settings))


def masked_places(tokens: int, budget: float, holes: str, rng: np.random.Generator) -> list[int]:
    """Choose the tokens to mask: round(budget * tokens) of them, scattered or in one stretch."""
    if holes == "random":
        return places(tokens, budget, rng)
    count = edit_count(tokens, budget)
    start = int(rng.integers(tokens - count + 1))
    return list(range(start, start + count))


def refill_ids(
    model: "Denoiser", ids: list[int], masked: list[int], seed: int, settings: dict[str, Any] | None = None
) -> list[int]:
    """Decode the places `masked` (ascending, not empty) of `ids` anew.

    Raises:
        InputError: no token would be left unmasked.
        PromptTooLong: the text does not fit the model's context.
        SettingsError: a setting is invalid.
    """
    from dgmark.decode import Canvas, Prepared, Request
    from dgmark.decode.canvas import collect
    from dgmark.decode.infilling import config_of_holes
    from dgmark.models.denoiser import traits_of

    if len(masked) == len(ids):
        raise InputError("every token would be masked, and the model has nothing to go by: choose a smaller budget")
    if len(ids) > model.context_length:
        raise PromptTooLong(
            f"the text has {len(ids)} tokens, but {traits_of(model).name} holds {model.context_length}: shorten it"
        )
    config = config_of_holes(model, settings or {})
    canvas = Canvas.with_holes(ids, masked, model.mask_id)
    prepared = Prepared.of(model, [Request(canvas, seed, None)], config, encode=lambda canvas: canvas)
    (batch,) = prepared.batches([0])
    (response,) = collect(model, batch.canvas, prepared.steps(batch))
    return ids[: canvas.start] + response.token_ids + ids[masked[-1] + 1 :]


@lru_cache(maxsize=1)
def load(name: str) -> "Denoiser":
    """Load a model; the one loaded last is kept.

    Raises:
        MissingExtra: torch or transformers is not installed.
    """
    try:
        from dgmark.models.load import load_model
    except ImportError as error:
        raise MissingExtra(f"refilling needs torch and transformers: {install_hint('generate')} ({error})") from None
    return load_model(name)
