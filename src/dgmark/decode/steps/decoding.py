"""Decodes of canvases: the loop of the settings, and the commits of its steps.

What is decoded comes in as token ids, and what marks it as a `DecodeSide`: no text, no key.
"""

from collections.abc import Collection, Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.rules import DecodeSide
from dgmark.decode.steps.canvas import Canvas, Commits, Response, collect
from dgmark.decode.steps.edit_loop import EditLoop
from dgmark.decode.steps.loop import Loop
from dgmark.decode.steps.round_trip import RoundTrip
from dgmark.errors import SettingsError
from dgmark.models.denoiser import Denoiser, traits_of


def decode(
    model: Denoiser,
    prompts: Int[Tensor, "batch prompt"],
    config: DecodeConfig,
    side: DecodeSide,
    seeds: Sequence[int],
    round_trip: RoundTrip | None = None,
) -> list[Response]:
    """Decode one response for each row; all prompts have one length.

    Each row has its own seed. At each forward it has two uniforms for each position of the active block, which follow
    from the seed, the number of the forward and the position alone (`draws.py`). A row stops once all positions up to
    an end token are committed. The arguments are those of `decode_steps`, with the token ids of prompts for a canvas.
    """
    canvas = Canvas.after(prompts, config.length, model.mask_id)
    return collect(model, canvas, decode_steps(model, canvas, config, side, seeds, round_trip))


def decode_steps(
    model: Denoiser,
    canvas: Canvas,
    config: DecodeConfig,
    side: DecodeSide,
    seeds: Sequence[int],
    round_trip: RoundTrip | None = None,
    dropped: Collection[int] = (),
) -> Iterator[Commits]:
    """Decode a canvas and yield the commits of each step.

    Args:
        model: the denoiser.
        canvas: the canvas to decode; not written to.
        config: decoding settings; the length is ignored, the canvas has its own.
        side: what the watermark does to a step (`side_of_rows`); `NoMark()` for no mark.
        seeds: one for each row.
        round_trip: tells which tokens survive re-tokenization; None for no check, whatever the settings say.
        dropped: rows that get no further commits; the caller may add to it between two steps. The other rows are
            decoded as they would be with them.

    Raises:
        SettingsError: a setting is invalid for this watermark.
        ModelFault: the model's logits have another shape, dtype or device than they should, or are NaN, +inf, or -inf
            for every id. Values are checked once a block, and before a row is finished.
    """
    steps: Iterator[Commits] | None = None
    while True:
        # left at each step: several decodes may take turns, and none may leave its mode to whoever asks for the step
        with torch.inference_mode():
            if steps is None:
                steps = _loop(model, canvas, config, side, seeds, round_trip).run(dropped)
            commits = next(steps, None)
        if commits is None:
            return
        yield commits


def _loop(
    model: Denoiser,
    canvas: Canvas,
    config: DecodeConfig,
    side: DecodeSide,
    seeds: Sequence[int],
    round_trip: RoundTrip | None,
) -> Loop:
    """The loop of these settings; that of deletions and insertions decodes whole blocks.

    Raises:
        SettingsError: tokens are to be deleted and inserted where the model, or text around holes, does not allow it.
    """
    if not config.inserts:
        return Loop(model, canvas, config, side, seeds, round_trip)
    if traits_of(model).edit_ids is None:
        raise SettingsError(f"{traits_of(model).name} neither deletes nor inserts: use edits replace")
    if not canvas.stops:
        raise SettingsError("edits levenshtein would move text around holes: use edits replace")
    whole = canvas.in_whole_blocks(config.block_length, traits_of(model).block_origin, model.mask_id)
    return EditLoop(model, whole, config, side, seeds, round_trip)
