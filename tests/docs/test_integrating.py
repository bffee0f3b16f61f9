"""The recipes of docs/integrating.md as they stand there, on a toy."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark.decode import DecodeConfig, decode
from dgmark.decode.matching import key_steering
from dgmark.decode.pair_levels import distances_of
from dgmark.detection.detector import Detector
from dgmark.engines import KeyStore
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey

PAGE = (Path(__file__).parents[2] / "docs" / "integrating.md").read_text()


def recipe(heading: str, number: int = 0) -> str:
    """One block of Python under a heading."""
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return blocks[number]


def defined(code: str, name: str, **names: Any) -> Any:
    """What a recipe defines."""
    exec(code, names)
    return names[name]


LOOP = "LLaDA's generate.py and Dream's diffusion_generate"
# nothing but words has a chance, as with a trained model
TOY = ToyDenoiser(words=80, spread=40.0, end_ids=(), end_bias=-1e3, forbidden_bias=-1e3)
SHARP = replace(TOY, spread=400.0)  # confidences on both sides of a threshold
PROMPT = [2, 7, 5, 3]
CPU = torch.device("cpu")


def toy_key(name: int, **spec: Any) -> WatermarkKey:
    """A key for the toy that is the same in every run."""
    fingerprint = TOY.tokenizer.fingerprint
    spec = {"table_size": TOY.vocab_size, "tokenizer": "toy", "tokenizer_fingerprint": fingerprint, **spec}
    return WatermarkKey(WatermarkSpec(**spec), "test", bytes([name]) * 32)


class Other:
    """The toy, called as the network of LLaDA or of Dream, whose logits stand one place to the left."""

    def __init__(self, use: str) -> None:
        self.dream = use == "Dream"

    def __call__(self, canvas: Tensor, *_: Any) -> Any:
        logits = TOY(canvas)
        if self.dream:
            logits = torch.cat([logits[:, 1:], logits[:, -1:]], 1)
        return SimpleNamespace(logits=logits)


@pytest.mark.parametrize("use", ["LLaDA", "Dream"])
def test_the_page_s_calls_mark_each_row_with_its_key(use: str) -> None:
    """Three rows: a key, none, a sub-key. Only the sizes and ids of LLaDA and Dream are replaced by the toy's."""
    call = recipe(LOOP, {"LLaDA": 1, "Dream": 2}[use])
    call = re.sub("126464|152064", str(TOY.vocab_size), call).replace("cuda", "cpu")
    call = call.replace("length=256", "length=96")  # of the text, and Dream's one block
    call = re.sub("mask_id=[0-9]+", "mask_id=0", call)
    call = re.sub(r"end_ids=\(.*?\)", "end_ids=()", call)
    many = toy_key(2, subkeys=16, rule="bigram", nearest=1, farthest=4)
    first = toy_key(1)
    names: dict[str, Any] = {
        "torch": torch,
        "DecodeConfig": DecodeConfig,
        "KeyStore": KeyStore,
        "generate": defined(recipe(LOOP), "generate"),
        "model": Other(use),
        "keys": [first, None, many.subkey(11)],
        "seeds": [1, 2, 3],
        "prompts": torch.tensor([PROMPT] * 3),
    }
    exec(call, names)
    rows = names["canvas"][:, len(PROMPT) :].tolist()
    found = [Detector(key, tokenizer=TOY.tokenizer).detect(rows[row]) for key, row in ((first, 0), (many, 2))]
    assert [one.verdict for one in found] == ["watermarked"] * 2
    assert found[1].subkey == 11
    assert Detector(first, tokenizer=TOY.tokenizer).detect(rows[1]).verdict != "watermarked"


def test_the_loop_stops_once_every_row_has_ended() -> None:
    toy = ToyDenoiser(words=80, spread=40.0, end_bias=12.0, forbidden_bias=-1e3)
    config, store = DecodeConfig(length=32, block_length=4, temperature=0), KeyStore(toy.vocab_size, "cpu")
    generate = defined(recipe(LOOP), "generate")
    blocks = [
        canvas.clone()
        for canvas in generate(toy, torch.tensor([PROMPT]), [None], [0], config, store, mask_id=0, end_ids=(1,))
    ]
    ended = [(block[0, 4:] == 1).any().item() for block in blocks]
    assert ended == [False] * (len(blocks) - 1) + [True]
    assert len(blocks) < 8


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"steps": 6},
        {"strategy": "entropy", "guard": 0.3, "steps": 9},
        {"strategy": "margin"},
        {"commit": "threshold"},
        {"commit": "factor", "factor": 0.5},
    ],
    ids=str,
)
def test_the_loop_writes_what_our_loop_writes(rule: dict[str, Any]) -> None:
    """Rows with keys of their own, one without, several blocks."""
    config = DecodeConfig(length=18, block_length=6, temperature=0, **rule)
    pairs = toy_key(3, rule="bigram", nearest=1, farthest=4, subkeys=16).subkey(3)
    keys = [toy_key(1, code_length=8), None, toy_key(2, modulus=3, code_length=9), pairs]
    prompts, seeds = torch.tensor([PROMPT, [4, 4, 4, 4], [9, 3, 2, 2], [5, 6, 7, 8]]), [0] * 4
    generate, store = defined(recipe(LOOP), "generate"), KeyStore(TOY.vocab_size, "cpu", distances=(1, 4))
    *_, canvas = generate(SHARP, prompts, keys, seeds, config, store, mask_id=0, end_ids=())
    ours = decode(SHARP, prompts, config, key_steering(keys, CPU), seeds=seeds)
    assert canvas[:, 4:].tolist() == [response.token_ids for response in ours]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("threshold", [None, 0.9])
@pytest.mark.parametrize("spec", [{"code_length": 8}, {"rule": "bigram", "nearest": 1, "farthest": 9}], ids=str)
def test_fast_dllm_commits_what_our_loop_commits(cache: str, threshold: float | None, spec: dict[str, Any]) -> None:
    """Its three loops hand over the whole canvas, then the canvas from the block on, or the block alone."""
    key, config = toy_key(1, **spec), DecodeConfig(length=24, block_length=8, temperature=0)
    store = KeyStore(TOY.vocab_size, "cpu", distances=distances_of([key]))
    transfer = defined(recipe("Fast-dLLM"), "marked_transfer")(key, 5, config, store, 4, 0)
    x = torch.tensor([PROMPT + [0] * 24])
    for low in range(4, 28, 8):
        part = {"none": slice(None), "prefix": slice(low, None), "dual": slice(low, low + 8)}[cache]
        window = slice(None)  # each block begins with a forward of the whole canvas
        while (x[:, low : low + 8] == 0).any():
            masked = x == 0
            masked[:, low + 8 :] = False
            quota = torch.tensor([1]) if threshold is None else None
            given = (masked[:, window], x[:, window], quota, threshold)
            tokens, chosen = transfer(SHARP(x)[:, window], 0.0, "low_confidence", *given)
            x[:, window][chosen] = tokens[chosen]
            window = part
    rule = config if threshold is None else DecodeConfig(**{**config.to_dict(), "commit": "threshold"})
    (ours,) = decode(SHARP, torch.tensor([PROMPT]), rule, key_steering([key], CPU), seeds=[0])
    assert x[0, 4:].tolist() == ours.token_ids
