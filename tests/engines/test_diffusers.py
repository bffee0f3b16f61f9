"""The scheduler for diffusers in diffusers' own pipelines, with tiny random networks."""

import inspect
import json
import sys
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    Gemma4VisionConfig,
)

from dgmark.decode import Canvas, DecodeConfig, NoMark
from dgmark.decode.steps.canvas import collect
from dgmark.decode.steps.decoding import decode_steps
from dgmark.decode.steps.selection import MOST_EDITING_STEPS
from dgmark.detection.detector import Detector
from dgmark.errors import InputError, MissingExtra, SettingsError, VocabularyMismatch
from dgmark.models.denoiser import BlockOrigin
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support import tiny_checkpoints as tiny
from support.cases import cases
from support.known_keys import bound_key, matches, net_matches
from support.unchecked import unchecked

diffusers = pytest.importorskip("diffusers")
from dgmark.engines.diffusers import MarkingBlockRefinementScheduler  # noqa: E402

# torch's own, when the pipeline for DiffusionGemma imports its compiler
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")

TOY = ToyDenoiser(words=190, padding=0)  # its words and its tokenizer; the networks are others
# the keys of a rule: one of all texts, and one with sub-keys where the rule has them
KEYS = {
    "position": (bound_key("one", TOY, rule="position"), bound_key("many", TOY, rule="position")),
    "bigram": (bound_key("one", TOY), bound_key("many", TOY, subkeys=16)),
}
KEY, PAIRS = KEYS["position"][0], KEYS["bigram"][0]
PROMPTS = torch.randint(2, 180, (4, 12), generator=torch.Generator().manual_seed(1))
SMALL: Any = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SMALL["initializer_range"] = 0.5


class Processor:
    """Prompts are ids in decimal."""

    eos_token_id = None

    def apply_chat_template(self, messages: Any, **_: Any) -> dict[str, Tensor]:
        return {"input_ids": torch.tensor([[int(word) for word in one[0]["content"].split()] for one in messages])}


@cache
def network(kind: str) -> Any:
    """A network of random weights in which words alone have a chance, called as the published ones are."""
    torch.manual_seed(0)
    made: Any = (
        gemma() if kind == "gemma" else BertForMaskedLM(BertConfig(vocab_size=TOY.vocab_size, **SMALL)).train(False)
    )

    def only_words(module: Any, given: Any, output: Any) -> None:
        output.logits = output.logits * made.spread
        output.logits[..., :2] = -1e4  # neither the mask nor an end

    made.register_forward_hook(only_words)
    return made


def gemma() -> Any:
    layers: Any = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}
    heads: Any = {"num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 16}
    experts: Any = {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16}
    ids: Any = {"boi_token_id": 187, "eoi_token_id": 188, "image_token_id": 189}
    text = DiffusionGemmaTextConfig(vocab_size=TOY.vocab_size, **SMALL, **layers, **heads, **experts)
    vision = Gemma4VisionConfig(num_key_value_heads=2, head_dim=16, **SMALL)
    config = DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=48, **ids)
    return DiffusionGemmaForBlockDiffusion(config).train(False)


def write(kind: str, scheduler: Any, spread: float = 0.5, **settings: Any) -> Any:
    """The ids (rows, length) that diffusers' own pipeline writes with this scheduler."""
    model = network(kind)
    model.spread = spread
    shared = {"temperature": 1.0, "generator": torch.Generator().manual_seed(2), "output_type": "seq"}
    if kind == "llada2":
        pipe = diffusers.LLaDA2Pipeline(model, scheduler)
        call = partial(pipe, input_ids=PROMPTS, gen_length=84, editing_threshold=None, mask_token_id=TOY.mask_id)
    else:
        of_model = model.model.decoder.create_diffusion_decoder_attention_mask
        if "past_key_values" not in inspect.signature(of_model).parameters:
            pytest.skip("diffusers 0.42 calls DiffusionGemma by a name that transformers has no more since 5.24")
        pipe = diffusers.DiffusionGemmaPipeline(model, scheduler, Processor())
        prompt = [" ".join(map(str, row)) for row in PROMPTS.tolist()]
        call = partial(pipe, prompt, gen_length=96, num_inference_steps=24, confidence_threshold=None)
    pipe.set_progress_bar_config(disable=True)
    return call(**{**shared, **settings}).sequences


@pytest.mark.parametrize(("kind", "spread", "settings"), cases(__file__, "unmarked"))
def test_without_a_key_the_text_is_that_of_the_ordinary_scheduler(
    kind: str, spread: float, settings: dict[str, Any]
) -> None:
    ordinary = diffusers.BlockRefinementScheduler(threshold=0.4)
    marking = MarkingBlockRefinementScheduler.from_config(ordinary.config, keys=None)
    expected = write(kind, ordinary, spread, **settings)
    assert torch.equal(write(kind, marking, spread, **settings), expected)
    for key in (KEY, PAIRS):
        marking = MarkingBlockRefinementScheduler.from_config(ordinary.config, keys=key, bias=0.5)
        assert not torch.equal(write(kind, marking, spread, **settings), expected)


@dataclass(frozen=True)
class Blocks(ToyDenoiser):
    """The network as the pipeline calls it: no place sees what comes after its block."""

    block_origin: BlockOrigin = "canvas"

    def __call__(self, ids: Tensor) -> Tensor:
        edges = range(0, ids.shape[1], 32)
        return torch.cat([network("llada2")(ids[:, : low + 32]).logits[:, low:] for low in edges], 1)


@pytest.mark.parametrize(
    ("rule", "threshold"),
    [({}, 2.0), ({"commit": "threshold", "threshold": 0.2}, 0.2)],
    ids=["one by one", "sure ones"],
)
@pytest.mark.parametrize("edit", [0.1, 0.6])
def test_the_loop_edits_as_the_pipeline_does(edit: float, rule: dict[str, Any], threshold: float) -> None:
    """One row at a time: the pipeline goes on editing a row until all rows are filled."""
    config = DecodeConfig(96, 32, temperature=0.0, edit_threshold=edit, **rule)
    model = Blocks(words=190, padding=0, end_ids=())
    more = {"temperature": 0.0, "num_inference_steps": 40, "threshold": threshold}
    more |= {"max_post_steps": MOST_EDITING_STEPS - 1}
    edited = 0
    for row in range(2):
        mine: Any = {"input_ids": PROMPTS[row : row + 1], **more}
        ordinary = diffusers.BlockRefinementScheduler()
        expected = write("llada2", ordinary, 0.7, editing_threshold=edit, **mine).tolist()
        canvas = Canvas.after(PROMPTS[row : row + 1], 84, TOY.mask_id)
        made = collect(model, canvas, decode_steps(model, canvas, config, NoMark(), [0]))
        assert [one.token_ids for one in made] == expected
        edited += len(made[0].trace.position) > 84
    assert edited


@pytest.mark.parametrize("rule", KEYS)
@pytest.mark.parametrize(("kind", "steps"), [("llada2", 12), ("gemma", 10)])
def test_a_row_without_a_key_is_not_changed_by_its_neighbours_marks(kind: str, steps: int, rule: str) -> None:
    """At thresholds that no confidence reaches, so that all rows take the same number of steps."""
    settings = {"num_inference_steps": steps} | ({"threshold": 2.0} if kind == "llada2" else {})
    expected = write(kind, diffusers.BlockRefinementScheduler(threshold=2.0), **settings)
    one, many = KEYS[rule]
    found = write(kind, MarkingBlockRefinementScheduler([one, None, many, None], threshold=2.0), **settings)
    assert [torch.equal(*rows) for rows in zip(found, expected, strict=True)] == [False, True, False, True]


@pytest.mark.cover(1)
@pytest.mark.parametrize(("kind", "spread", "settings"), cases(__file__, "marked"))
@pytest.mark.parametrize("rule", KEYS)
def test_the_mark_of_each_row_is_found_in_its_text(
    kind: str, spread: float, settings: dict[str, Any], rule: str
) -> None:
    one, many = KEYS[rule]
    bias = 2.0 if rule == "bigram" and "temperature" in settings else 0.0
    scheduler = MarkingBlockRefinementScheduler([one, None, many, one], bias=bias)
    texts = [TOY.tokenizer.decode(row) for row in write(kind, scheduler, spread, **settings).tolist()]
    detectors = [Detector(key, tokenizer=TOY.tokenizer) for key in (one, many)]
    found = [[detector.detect(text).verdict == "watermarked" for text in texts] for detector in detectors]
    assert found == [[True, False, False, True], [False, False, True, False]]
    assert scheduler.rows[2] is not None
    assert detectors[1].detect(texts[2]).subkey == scheduler.rows[2].number


@pytest.mark.parametrize("kind", ["llada2", "gemma"])
def test_keyed_draws_are_made_with_the_schedulers_random_numbers(kind: str) -> None:
    """Where bits move nothing, a row with a key is that of the ordinary scheduler."""
    settings = {"num_inference_steps": 12} | ({"threshold": 2.0} if kind == "llada2" else {})
    expected = write(kind, diffusers.BlockRefinementScheduler(threshold=2.0), **settings)
    with patch("dgmark.engines.core.KeyedDraw.apply", lambda *_: None):
        assert torch.equal(write(kind, MarkingBlockRefinementScheduler(PAIRS, threshold=2.0), **settings), expected)


class Watched(MarkingBlockRefinementScheduler):
    """Keeps what stands at the committed places after each step, by the block's first position; -1 elsewhere.

    Beside it the tokens of the blocks before, as the scheduler knows them.
    """

    def step(self, model_output: Tensor, timestep: Any, sample: Any, **named: Any) -> Any:
        output = super().step(model_output, timestep, sample, **named)
        committed = self._committed if named["mask_token_id"] is None else output.prev_sample != TOY.mask_id
        self.seen = [
            *getattr(self, "seen", []),
            (self._start, output.prev_sample.masked_fill(~committed, -1), self._written),
        ]
        return output

    step.__wrapped__ = MarkingBlockRefinementScheduler.step  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "spread", "config", "settings"), cases(__file__, "edited"))
def test_no_edit_and_no_early_stop_loses_a_match_or_level(
    kind: str, spread: float, config: dict[str, Any], settings: dict[str, Any]
) -> None:
    """All rows are edited, and the row without a key loses matches, as it may."""
    scheduler = Watched([KEY, None, KEY, KEY], **config)
    text = write(kind, scheduler, spread, **settings).tolist()
    changed, lost = [0] * 4, [0] * 4
    for start, tokens, _ in scheduler.seen:
        for row, place in (tokens >= 0).nonzero().tolist():
            position, token = start + place, int(tokens[row, place])
            if 0 <= position < len(text[row]) and token != text[row][position]:
                changed[row] += 1
                lost[row] += matches(KEY, token, position) and not matches(KEY, text[row][position], position)
    assert all(changed)
    assert [one > 0 for one in lost] == [False, True, False, False]
    scheduler = Watched([PAIRS, None, PAIRS, PAIRS], **config, bias=0.1)
    text = write(kind, scheduler, spread, **settings).tolist()
    assert [count > 0 for count in lowered(PAIRS, scheduler.seen, text)] == [False, True, False, False]


def lowered(key: WatermarkKey, seen: list[Any], text: list[list[int]]) -> list[int]:
    """How many steps of each row took matches from what was committed, by edits of it or by an early stop."""
    counts = [0] * len(text)
    for number, (start, tokens, written) in enumerate(seen):
        after = seen[number + 1][1] if seen[number + 1 : number + 2] and seen[number + 1][0] == start else None
        for row, before in enumerate(tokens.tolist()):
            prompt = max(-start, 0)
            new = [0] * prompt + (text[row] + [-1] * 99)[max(start, 0) :] if after is None else after[row].tolist()
            if after is None:  # what was never committed counts for nothing
                new = [token if token < 0 else last for token, last in zip(before, new, strict=False)]
            old = [last if token < 0 else token for token, last in zip(before, new, strict=True)]
            hidden = written[row].tolist() + [-1] * prompt
            counts[row] += net_matches(key, hidden + new[prompt:]) < net_matches(key, hidden + old[prompt:])
    return counts


@pytest.mark.parametrize("mode", [{"mask_token_id": 0}, {"mask_token_id": None}], ids=str)
def test_a_step_returns_the_confidences_that_were_drawn(mode: dict[str, Any]) -> None:
    logits = torch.randn(2, 32, TOY.vocab_size, generator=torch.manual_seed(0))
    given: Any = logits, 0, torch.zeros(2, 32, dtype=torch.long)
    outputs = []
    for scheduler in (diffusers.BlockRefinementScheduler(), MarkingBlockRefinementScheduler([KEY, None])):
        scheduler.set_timesteps(4, block_length=32)
        outputs.append(scheduler.step(*given, return_dict=False, generator=torch.manual_seed(3), **mode))
    assert [torch.equal(*pair) for pair in zip(*outputs, strict=True)] == [False, False, True, True, True, True]
    assert [commits.sum(1).tolist() for _, commits, *_ in outputs] == [[8, 8], [8, 8]]


def test_the_keys_are_saved_nowhere_and_no_scheduler_is_made_without_them(tmp_path: Path) -> None:
    made = MarkingBlockRefinementScheduler.from_config({"threshold": 0.7}, keys=KEY)
    made.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "scheduler_config.json").read_text())
    assert saved["threshold"] == 0.7
    assert "keys" not in saved
    with pytest.raises(TypeError, match="keys"):
        MarkingBlockRefinementScheduler.from_pretrained(tmp_path)
    assert MarkingBlockRefinementScheduler.from_pretrained(tmp_path, keys=KEY).config.threshold == 0.7


@pytest.mark.parametrize(
    ("keys", "error", "problem"),
    [
        ([KEY, None], SettingsError, "has 2 keys and this call 4 rows"),
        (bound_key("rotating", TOY, rotation=8), SettingsError, "rotates every 8 positions"),
        (bound_key("other", ToyDenoiser()), VocabularyMismatch, "the model predicts"),
        ([KEY, "key.json"], SettingsError, "a key is a WatermarkKey, not a str"),
        ([KEY, PAIRS, None, None], SettingsError, "keys of the rules bigram and position"),
        (PAIRS, SettingsError, "temperature 0 draws nothing"),
    ],
)
def test_keys_that_cannot_mark_stop_a_text_before_its_first_token(
    keys: Any, error: type[Exception], problem: str
) -> None:
    with unchecked(), pytest.raises(error, match=problem):
        write("llada2", MarkingBlockRefinementScheduler(keys), temperature=0.0)  # the pipeline's own


def test_a_prompt_with_the_mask_in_the_first_block_is_refused() -> None:
    with pytest.raises(InputError, match="the prompt holds the id of the mask"):
        write("llada2", MarkingBlockRefinementScheduler(KEY), input_ids=PROMPTS.index_fill(1, torch.tensor([1]), 0))


def test_a_key_is_made_for_a_checkpoint_whose_vocabulary_stands_in_its_text_config(tmp_path: Path) -> None:
    tiny.write(tmp_path, "dream", model_type="diffusion_gemma", text_config={"vocab_size": 90})
    assert WatermarkKey.generate(str(tmp_path)).spec.table_size == 90


def test_without_diffusers_or_a_schedule_the_error_says_what_to_do() -> None:
    given = torch.zeros(1, 4, TOY.vocab_size), 0, torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(SettingsError, match="call set_timesteps before the first step"):
        MarkingBlockRefinementScheduler(KEY).step(*given, mask_token_id=0)
    with patch.dict(sys.modules, {"diffusers": None}):
        del sys.modules["dgmark.engines.diffusers"]
        with pytest.raises(MissingExtra, match=r"pip install '.\[diffusers\]'"):
            import_module("dgmark.engines.diffusers")
