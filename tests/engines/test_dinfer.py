"""The decoder for dInfer, on a stub of its base class and a loop that calls it as dInfer's do."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from dgmark.decode import DecodeConfig, decode
from dgmark.detection.detector import Detector
from dgmark.engines.dinfer import marked_decoder
from dgmark.errors import InputError, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key
from support.rules import rule_of_key

TOY = ToyDenoiser(words=80, spread=16.0, end_ids=(), end_bias=-1e3, forbidden_bias=-1e3)
PROMPTS = [[2, 7, 5, 3], [4, 4, 9, 8], [6, 5, 4, 3]]


class ParallelDecoder:
    """dInfer's base class."""

    def __init__(self, temperature: float, remasking: str = "low_confidence", mask_id: int = 126336) -> None:
        self.temperature, self.remasking, self.mask_id = temperature, remasking, mask_id

    def block_init(self, block_x: Any, block_id: int) -> None: ...


@pytest.fixture(autouse=True)
def _dinfer() -> Iterator[None]:
    strategies: Any = SimpleNamespace(ParallelDecoder=ParallelDecoder)
    names: dict[str, Any] = {
        "dinfer": SimpleNamespace(),
        "dinfer.decoding": SimpleNamespace(),
        "dinfer.decoding.parallel_strategy": strategies,
    }
    with patch.dict(sys.modules, names):
        yield


def generate(decoder: Any, prompts: list[list[int]], length: int, threshold: float | None = None) -> list[list[int]]:
    """Block after block; each is decoded a few times too often, as dInfer's unrolled loops do."""
    x = torch.tensor([prompt + [0] * length for prompt in prompts])
    for low in range(4, 4 + length, 8):
        decoder.block_init(x[:, low : low + 8], low // 8)
        spare = 3
        while (x[:, low : low + 8] == 0).any() or (spare := spare - 1):
            more = () if threshold is None else (threshold,)
            decoder.decode(TOY(x)[:, low : low + 8], low, low + 8, x, *more)
    answers: list[list[int]] = x[:, 4:].tolist()
    return answers


def key_of(number: int, **spec: Any) -> WatermarkKey:
    return bound_key(str(number), TOY, **spec) if number else bound_key("0", TOY, code_length=8)


@pytest.mark.parametrize("commit", ["quota", "threshold"])
def test_a_batch_commits_what_our_loop_commits(commit: str) -> None:
    config = DecodeConfig(length=24, block_length=8, temperature=0, bias=2, commit=commit)  # type: ignore[arg-type]
    decoder = marked_decoder(config, mask_id=0, eos_id=1)
    for key in (key_of(0), None, key_of(1, subkeys=8).subkey(3), key_of(2, farthest=11, subkeys=1), None):
        decoder.begin(key, prompt_length=4)
        ours = decode(TOY, torch.tensor(PROMPTS), config, rule_of_key(key, 3), seeds=[0, 0, 0])
        assert generate(decoder, PROMPTS, 24) == [response.token_ids for response in ours]


def test_sampled_text_is_detected_and_the_next_call_may_be_unmarked() -> None:
    decoder = marked_decoder(DecodeConfig(temperature=0.7, bias=1), mask_id=0, eos_id=1)
    for key in (key_of(0), key_of(1, subkeys=8).subkey(3)):
        detector = Detector(key, tokenizer=TOY.tokenizer)
        for own, expected in ((key, True), (None, False)):
            decoder.begin(own, prompt_length=4, seed=8)
            answers = generate(decoder, PROMPTS[:2], 96)
            assert [detector.detect(answer).verdict == "watermarked" for answer in answers] == [expected] * 2
            assert answers[0] != answers[1]


def test_a_threshold_given_for_one_call_holds_for_it() -> None:
    config = DecodeConfig(length=16, block_length=8, temperature=0, commit="threshold", threshold=0.99)
    low = DecodeConfig(**{**config.to_dict(), "threshold": 0.4})
    key = key_of(0)
    decoder = marked_decoder(config, mask_id=0, eos_id=1)
    decoder.begin(key, prompt_length=4)
    (ours,) = decode(TOY, torch.tensor(PROMPTS[:1]), low, rule_of_key(key), seeds=[0])
    assert generate(decoder, PROMPTS[:1], 16, threshold=0.4) == [ours.token_ids]


def test_a_prompt_with_the_mask_is_refused() -> None:
    decoder = marked_decoder(DecodeConfig(temperature=0.7), mask_id=0, eos_id=1)
    decoder.begin(key_of(1, subkeys=1), prompt_length=4)
    with pytest.raises(InputError, match="the prompt holds the id of the mask"):
        decoder.decode(TOY(x := torch.tensor([[2, 0, 5, 3] + [0] * 8]))[:, :8], 0, 8, x)


def test_a_decoder_that_was_told_nothing_is_refused() -> None:
    decoder = marked_decoder(DecodeConfig(temperature=0), mask_id=0, eos_id=1)
    with pytest.raises(SettingsError, match=r"call begin\(key, prompt_length\)"):
        generate(decoder, PROMPTS, 8)
    decoder.begin(key_of(1, subkeys=8).subkey(3), prompt_length=4)
    with pytest.raises(SettingsError, match="temperature 0 draws nothing"):
        generate(decoder, PROMPTS, 8)
