"""The unmasking processor for LMDeploy, on a stub and on LMDeploy's own base class."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from dgmark.decode import DecodeConfig, decode
from dgmark.detection.detector import Detector
from dgmark.engines.lmdeploy import install
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from support.block_causal_toy import BlockCausalToy
from support.engine_packages import package, stub
from support.known_keys import bound_key
from support.rules import rule_of_key

TOY = BlockCausalToy(spread=200.0, dtype=torch.float32)
MASKED, UNMASKED, CACHED = 0, 1, 2
STRATEGIES = SimpleNamespace(LOW_CONFIDENCE_STATIC="static", LOW_CONFIDENCE_DYNAMIC="dynamic", SEQUENTIAL="sequential")


class UnmaskingProcessor:
    """LMDeploy's: a finished block becomes a cached one, then the strategy commits."""

    def __init__(self, dllm_config: Any) -> None:
        self.dllm_config = dllm_config

    def _get_denoise_num(self) -> int:
        return max(1, int(self.dllm_config.block_length) // int(self.dllm_config.denoising_steps))

    def __call__(
        self, logits: Tensor, input_ids: Tensor, token_ids: Tensor, dllm_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        blocks = dllm_mask.view(-1, self.dllm_config.block_length)
        blocks[(blocks == UNMASKED).all(1)] = CACHED
        token_ids = torch.where(dllm_mask != MASKED, input_ids, token_ids)
        match self.dllm_config.unmasking_strategy:
            case "static":
                return self.low_confidence_static(logits, token_ids, dllm_mask), token_ids  # type: ignore[attr-defined]
            case "dynamic":
                return self.low_confidence_dynamic(logits, token_ids, dllm_mask), token_ids  # type: ignore[attr-defined]
            case _:
                return self.sequential(dllm_mask), token_ids  # type: ignore[attr-defined]


@pytest.fixture(params=["on a stub", "on LMDeploy's own base class"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The module whose strategy class makes the processor."""
    base = UnmaskingProcessor if request.param == "on a stub" else real_base(tmp_path)

    class Strategy:
        def __init__(self, dllm_config: Any) -> None:
            self.block_size = dllm_config.block_length
            self.unmasking_processor = model_agent.UnmaskingProcessor(dllm_config=dllm_config)

        def post_sampling(
            self, inputs: Any, logits: Tensor, next_token_ids: Tensor, extra_inputs: Any
        ) -> tuple[Tensor, Any]:
            ids = inputs.input_ids.flatten()
            mask, next_token_ids = self.unmasking_processor(logits, ids, next_token_ids, extra_inputs.dllm_mask)
            extra_inputs.dllm_mask = mask
            return next_token_ids, extra_inputs

    model_agent = stub("m", UnmaskingProcessor=base, DLLMModelAgentStrategy=Strategy)
    modules: dict[str, Any] = {
        name: stub(name) for name in ("lmdeploy", "lmdeploy.pytorch", "lmdeploy.pytorch.strategies")
    }
    modules["lmdeploy.pytorch.strategies.dllm"] = stub(
        "dllm", model_agent=model_agent, unmasking=stub("u", UnmaskingProcessor=base)
    )
    with patch.dict(sys.modules, modules):
        yield model_agent


def real_base(folder: Path) -> Any:
    consts = stub("consts", DLLM_MASKED=MASKED, DLLM_UNMASKED=UNMASKED, DLLM_CACHED=CACHED)
    imports: dict[str, dict[str, Any]] = {
        "lmdeploy": {},
        "lmdeploy.pytorch": {"consts": consts},
        "lmdeploy.pytorch.config": {"DLLMConfig": Any, "UnmaskingStrategy": STRATEGIES},
    }
    path = "lmdeploy/pytorch/strategies/dllm/unmasking.py"
    return package("lmdeploy").run(path, "lmdeploy.pytorch.unmasking", imports, folder).UnmaskingProcessor


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    bound_key("plain", TOY, code_length=0).save(folder / "plain.json")
    return folder


def serve(agent: Any, prompts: list[list[int]], length: int, **config: Any) -> list[list[int]]:
    """Answers, block by block: all rows together, as one batch; prompts of one number of blocks."""
    settings = SimpleNamespace(block_length=8, denoising_steps=8, confidence_threshold=0.9, **config)
    strategy = agent.DLLMModelAgentStrategy(settings)
    rows = [list(prompt) for prompt in prompts]
    first = len(prompts[0]) // 8 * 8
    for low in range(first, first + length + 8, 8):
        blocks = torch.tensor([(row + [0] * 8)[low : low + 8] for row in rows])
        known = torch.tensor([[low + place < len(row) for place in range(8)] for row in rows])
        extra = SimpleNamespace(dllm_mask=torch.where(known, UNMASKED, MASKED).flatten())
        inputs = SimpleNamespace(
            input_ids=blocks.view(1, -1),
            history_lengths=torch.full((len(rows),), low),
            seq_length=torch.full((len(rows),), 8),
        )
        while (extra.dllm_mask != CACHED).any():
            canvas = torch.cat([torch.tensor([row[:low] for row in rows], dtype=torch.long), blocks], 1)
            logits = TOY(canvas)[:, -8:].flatten(0, 1).float()
            tokens, extra = strategy.post_sampling(inputs, logits, logits.argmax(-1), extra)
            shown = extra.dllm_mask.view(-1, 8) != MASKED
            blocks = torch.where(shown, tokens.view(-1, 8), 0)
            inputs.input_ids = blocks.view(1, -1)
        rows = [row[:low] + block for row, block in zip(rows, blocks.tolist(), strict=True)]
    return [row[len(prompt) :][:length] for row, prompt in zip(rows, prompts, strict=True)]


@pytest.mark.parametrize("strategy", ["static", "dynamic"])
def test_every_block_is_that_of_our_loop(agent: Any, keys: Path, strategy: str) -> None:
    """A key of period 2: after an even number of prompt tokens both count alike."""
    install({"keys": str(keys), "key": "plain"})
    prompts = [[9, 8, 7, 6], [2, 3]]
    answers = serve(agent, prompts, 16, unmasking_strategy=strategy)
    config = DecodeConfig(length=24, block_length=8, temperature=0)
    if strategy == "dynamic":
        config = DecodeConfig(**{**config.to_dict(), "commit": "threshold"})
    rule = rule_of_key(WatermarkKey.load(keys / "plain.json"))
    for prompt, answer in zip(prompts, answers, strict=True):
        (ours,) = decode(TOY, torch.tensor([prompt]), config, rule, seeds=[0])
        assert answer == ours.token_ids[:16]


def test_the_answer_is_detected_without_knowing_where_the_prompt_ended(agent: Any, keys: Path) -> None:
    install({"keys": str(keys), "key": "plain"})
    (answer,) = serve(agent, [[5, 4, 3]], 96, unmasking_strategy="static")
    found = Detector(WatermarkKey.load(keys / "plain.json"), tokenizer=TOY.tokenizer).detect(answer)
    assert found.verdict == "watermarked"


def test_what_has_no_choice_or_no_channel_is_refused(agent: Any, keys: Path, tmp_path: Path) -> None:
    folder = str(keys)
    bound_key("many", TOY, subkeys=4).save(tmp_path / "many.json")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"keys": str(tmp_path)}, "neither the tokens before the block nor where the answer begins"),
        ({"key": "plain", "policy": "default"}, "none can opt out"),
        ({"key": "plain", "threshold": 0.8}, "LMDeploy has its own threshold"),
    ]
    for settings, problem in cases:
        with pytest.raises(SettingsError, match=problem):
            install({"keys": folder} | settings)
    install({"keys": folder, "key": "plain"})
    with pytest.raises(SettingsError, match="no choice to mark"):
        serve(agent, [[2, 3]], 8, unmasking_strategy="sequential")


def test_lmdeploy_has_what_the_adapter_reads() -> None:
    wheel, folder = package("lmdeploy"), "lmdeploy/pytorch/strategies/dllm"
    processor = f"{folder}/unmasking.py"
    expected = {
        "__call__": ["self", "logits", "input_ids", "token_ids", "dllm_mask"],
        "low_confidence_static": ["self", "logits", "token_ids", "dllm_mask"],
        "low_confidence_dynamic": ["self", "logits", "token_ids", "dllm_mask"],
        "sequential": ["self", "dllm_mask"],
        "_get_denoise_num": ["self"],
    }
    for method, arguments in expected.items():
        assert wheel.arguments(processor, f"UnmaskingProcessor.{method}") == arguments
    wheel.check(
        f"{folder}/model_agent.py",
        "self.unmasking_processor = UnmaskingProcessor(dllm_config=dllm_config)",
        "dllm_mask, next_token_ids = self.unmasking_processor(logits, input_ids, next_token_ids, dllm_mask)",
        "kv_seqlens = inputs.history_lengths + inputs.seq_length",
    )
    wheel.check("lmdeploy/pytorch/consts.py", "DLLM_MASKED = 0", "DLLM_UNMASKED = 1", "DLLM_CACHED = 2")
