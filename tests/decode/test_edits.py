"""What edits of committed tokens may not change, and when they end; `test_whole_decodes` compares their texts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dgmark.decode import Canvas, DecodeConfig, NoMark, Response, decode
from dgmark.decode.loop import decode_steps
from dgmark.decode.selection import MOST_EDITING_STEPS
from dgmark.models.load import load_model
from dgmark.models.toy import ToyDenoiser
from support import tiny_checkpoints as tiny
from support.known_keys import bound_key
from support.rules import rule_of_key

LENGTH, BLOCK, MASK = 18, 6, 0
PROMPTS = torch.tensor([[2, 7, 5]])
ENDLESS = ToyDenoiser(end_ids=())


def test_a_block_is_edited_until_nothing_changes_or_sixteen_times() -> None:
    def forwards(model: ToyDenoiser, threshold: float | None) -> int:
        canvas = Canvas.after(PROMPTS, LENGTH, MASK)
        config = DecodeConfig(LENGTH, BLOCK, edit_threshold=threshold)
        return sum(step.forwards for step in decode_steps(model, canvas, config, NoMark(), [0]))

    assert forwards(ENDLESS, None) == LENGTH
    assert forwards(ENDLESS, 0.0) == LENGTH + LENGTH // BLOCK * MOST_EDITING_STEPS
    assert forwards(replace(ENDLESS, spread=0.0), 0.9) == LENGTH + LENGTH // BLOCK  # one that finds nothing to edit


@pytest.mark.parametrize("cache", ["none", "prefix"])
def test_with_the_exact_cache_of_llada_2_the_text_is_that_without_it(tmp_path: Path, cache: Any) -> None:
    tiny.write(tmp_path, "llada2")
    model = load_model(str(tmp_path), dtype="fp32")
    key = bound_key("edits", model)

    def text(**settings: Any) -> Response:
        config = DecodeConfig.of(model, length=64, steps=32, temperature=0.7, **settings)
        canvas = Canvas.after(torch.tensor([[5, 9, 7, 11]]), 64, model.mask_id)
        return decode(model, canvas.ids[:, :4], config, rule_of_key(key), [6])[0]

    plain = text(cache="none", edit_threshold=0.0)
    assert len(plain.trace.position) > len({*plain.trace.position}) + 10  # edits
    assert text(cache=cache, edit_threshold=0.0).token_ids == plain.token_ids
    assert text(cache=cache).token_ids != plain.token_ids
