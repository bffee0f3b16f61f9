"""The recipes of docs/own-loop.md as they stand there, on a toy."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark.decode import DecodeConfig, decode, side_of_rows
from dgmark.decode.steps.draws import Draws
from dgmark.decode.steps.proposals import Candidates, Proposer, draw
from dgmark.detection.detector import Detector
from dgmark.engines import KeyStore, uniform_draws
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.cases import cases
from support.known_keys import bound_key
from support.unchecked import unchecked

PAGE = (Path(__file__).parents[2] / "docs" / "own-loop.md").read_text()


def recipe(heading: str, number: int = 0) -> str:
    """One block of Python under a heading."""
    section = PAGE.split(f"# {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    blocks: list[str] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return blocks[number]


def defined(code: str, name: str, **names: Any) -> Any:
    """What a recipe defines."""
    exec(code, names)
    return names[name]


STEP = "Two calls"
DRAWN = "An engine that draws the tokens itself"
LOOP = "LLaDA's generate.py and Dream's diffusion_generate"
# nothing but words has a chance, as with a trained model
TOY = ToyDenoiser(words=80, spread=40.0, end_ids=(), end_bias=-1e3, forbidden_bias=-1e3)
SHARP = replace(TOY, spread=400.0)  # confidences on both sides of a threshold
PROMPT = [2, 7, 5, 3]
CPU = torch.device("cpu")


PAIRS = bound_key("many", TOY, subkeys=16)
KEYS = {
    "position": [
        bound_key("one", TOY, code_length=8),
        None,
        bound_key("two", TOY, modulus=3, code_length=9),
        bound_key("three", TOY, code_length=0),
    ],
    "bigram": [PAIRS.subkey(3), None, bound_key("one", TOY), PAIRS.subkey(9)],
}


def let_our_loop_draw_as_recipes_do(monkeypatch: pytest.MonkeyPatch, seeds: list[int]) -> None:
    """Our loop counts a row's forwards, the recipes what is masked."""
    original = Proposer.__call__

    def call(
        self: Proposer, logits: Tensor, ids: Tensor, masked: Tensor, rows: Tensor, low: int, count: int
    ) -> Candidates:
        positions = torch.arange(low, low + masked.shape[1]).expand(masked.shape)
        draws = uniform_draws(torch.tensor(seeds)[rows], masked.sum(1), positions)
        monkeypatch.setattr(Draws, "uniforms", lambda *_: draws)
        return original(self, logits, ids, masked, rows, low, count=count)

    monkeypatch.setattr(Proposer, "__call__", call)


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
    """Three rows: a sub-key, none, another sub-key. Only the sizes and ids of LLaDA and Dream are the toy's."""
    call = recipe(LOOP, {"LLaDA": 1, "Dream": 2}[use])
    call = re.sub("126464|152064", str(TOY.vocab_size), call).replace("cuda", "cpu")
    call = call.replace("length=256", "length=96")  # of the text, and Dream's one block
    call = re.sub("mask_id=[0-9]+", "mask_id=0", call)
    call = re.sub(r"end_ids=\(.*?\)", "end_ids=()", call)
    call = re.sub(r"temperature=[0-9.]+", "temperature=9", call)  # at which the toy is as unsure as they are
    names: dict[str, Any] = {
        "torch": torch,
        "DecodeConfig": DecodeConfig,
        "KeyStore": KeyStore,
        "generate": defined(recipe(LOOP), "generate"),
        "model": Other(use),
        "keys": [PAIRS.subkey(2), None, PAIRS.subkey(11)],
        "seeds": [1, 2, 3],
        "prompts": torch.tensor([PROMPT] * 3),
    }
    exec(call, names)
    rows = names["canvas"][:, len(PROMPT) :].tolist()
    found = [Detector(PAIRS, tokenizer=TOY.tokenizer).detect(row) for row in rows]
    assert [one.verdict == "watermarked" for one in found] == [True, False, True]
    assert [found[0].subkey, found[2].subkey] == [2, 11]


def test_the_loop_stops_once_every_row_has_ended() -> None:
    toy = ToyDenoiser(words=80, spread=40.0, end_bias=12.0, forbidden_bias=-1e3)
    config, store = DecodeConfig(length=32, block_length=4, temperature=0), KeyStore([None], toy.vocab_size, "cpu")
    generate = defined(recipe(LOOP), "generate")
    blocks = [
        canvas.clone()
        for canvas in generate(toy, torch.tensor([PROMPT]), [None], [0], config, store, mask_id=0, end_ids=(1,))
    ]
    ended = [(block[0, 4:] == 1).any().item() for block in blocks]
    assert ended == [False] * (len(blocks) - 1) + [True]
    assert len(blocks) < 8


@pytest.mark.parametrize(("rule", "settings"), cases(__file__, "settings"))
def test_the_loop_writes_what_our_loop_writes(
    rule: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows with keys of their own, one without, several blocks."""
    config, keys, seeds = DecodeConfig(length=18, block_length=6, **settings), KEYS[rule], [7, 5, 3, 1]
    prompts = torch.tensor([PROMPT, [4, 4, 4, 4], [9, 3, 2, 2], [5, 6, 7, 8]])
    generate, store = defined(recipe(LOOP), "generate"), KeyStore(keys, TOY.vocab_size, "cpu")
    let_our_loop_draw_as_recipes_do(monkeypatch, seeds)

    def write(keys: list[WatermarkKey | None]) -> list[list[int]]:
        *_, canvas = generate(SHARP, prompts, keys, seeds, config, store, mask_id=0, end_ids=())
        rows: list[list[int]] = canvas[:, 4:].tolist()
        return rows

    found = write(keys)
    assert found == [row.token_ids for row in decode(SHARP, prompts, config, side_of_rows(keys, CPU), seeds=seeds)]
    changed = [mine != plain for mine, plain in zip(found, write([None] * 4), strict=True)]
    assert changed == [key is not None for key in keys]


@pytest.mark.parametrize(
    ("change", "problem"), [({"keys": [None]}, "there are 1 keys for 2 rows"), *cases(__file__, "refused")]
)
def test_the_recipes_refuse_what_would_do_nothing_or_leave_no_mark(change: dict[str, Any], problem: str) -> None:
    settings: dict[str, Any] = {"length": 16, "block_length": 8, "keys": [PAIRS.subkey(1), None], "seeds": [5, 6]}
    settings |= change
    keys, seeds = settings.pop("keys"), settings.pop("seeds")
    config, store = DecodeConfig(**settings), KeyStore([PAIRS], TOY.vocab_size, "cpu")
    generate = defined(recipe(LOOP), "generate")
    with unchecked(), pytest.raises(SettingsError, match=problem):
        next(generate(TOY, torch.tensor([PROMPT] * 2), keys, seeds, config, store, mask_id=0, end_ids=()))


def test_the_recipe_of_one_request_refuses_settings_that_leave_no_mark() -> None:
    config, store = DecodeConfig(length=8, block_length=8, temperature=0), KeyStore([PAIRS], TOY.vocab_size, "cpu")
    transfer = defined(recipe("Fast-dLLM"), "marked_transfer")(PAIRS.subkey(1), 5, config, store, 4, 0)
    x = torch.tensor([PROMPT + [0] * 8])
    with pytest.raises(SettingsError, match="give a bias"):
        transfer(TOY(x), 0.0, "low_confidence", x == 0, x, torch.tensor([1]))


@pytest.mark.parametrize("settings", [{"temperature": 0, "bias": 2}, {"temperature": 0.9, "top_k": 20}], ids=str)
def test_an_engine_that_draws_itself_commits_what_our_step_commits(settings: dict[str, Any]) -> None:
    config, keys = DecodeConfig(**settings), KEYS["bigram"]
    canvas = torch.randint(2, 70, (4, 20), generator=torch.Generator().manual_seed(2))
    masked = torch.rand(4, 8, generator=torch.Generator().manual_seed(3)) < 0.5
    positions = torch.arange(8, 16).expand(4, 8)
    logits = torch.randn(4, 8, TOY.vocab_size, generator=torch.Generator().manual_seed(4)) * 3
    logits[..., 0] = -torch.inf
    uniforms = uniform_draws(torch.arange(4), masked.sum(1), positions)

    def engine(after: Tensor) -> Tensor:
        weights = torch.softmax(after, -1).flatten(0, 1)
        drawn = weights.argmax(-1) if config.greedy else draw(weights, uniforms[..., 0].flatten())
        return drawn.view(4, 8)

    of_page = {"torch": torch, "own": config, "draw": engine, "forbidden": torch.tensor([0]), "device": CPU}
    of_page |= {"key": keys[0], "other_key": keys[2], "seeds": [0, 1, 2, 3]}
    names = locals() | of_page | {"quota": 2, "start": 8, "stop": 16, "table_size": TOY.vocab_size}
    step = recipe(STEP).replace("DecodeConfig(temperature=0.8)", "own").replace("[key, None, other_key]", "keys")
    step = step.replace("rows=3", "rows=4")
    step = step.replace("block=block)", "block=block, tempered=True)")
    exec(step, names)
    proposals, commit = names["proposals"], names["commit"]
    assert commit.sum(1).tolist() == masked.sum(1).clamp(max=2).tolist()
    exec(recipe(DRAWN), names)
    assert torch.equal(names["tokens"], proposals.tokens)
    assert torch.allclose(names["scores"], proposals.scores.float(), rtol=1e-5)
    assert torch.equal(names["commit"], commit)


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("threshold", [None, 0.9])
@pytest.mark.parametrize(("spec", "settings"), cases(__file__, "fast_dllm"))
def test_fast_dllm_commits_what_our_loop_commits(
    cache: str, threshold: float | None, spec: dict[str, Any], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its three loops hand over the whole canvas, then the canvas from the block on, or the block alone."""
    key, config = bound_key("one", TOY, **spec), DecodeConfig(length=24, block_length=8, **settings)
    store = KeyStore([key], TOY.vocab_size, "cpu")
    transfer = defined(recipe("Fast-dLLM"), "marked_transfer")(key, 5, config, store, 4, 0)
    let_our_loop_draw_as_recipes_do(monkeypatch, [5])
    x = torch.tensor([PROMPT + [0] * 24])
    for low in range(4, 28, 8):
        part = {"none": slice(None), "prefix": slice(low, None), "dual": slice(low, low + 8)}[cache]
        window = slice(None)  # each block begins with a forward of the whole canvas
        while (x[:, low : low + 8] == 0).any():
            masked = x == 0
            masked[:, low + 8 :] = False
            quota = torch.tensor([1]) if threshold is None else None
            given = (masked[:, window], x[:, window], quota, threshold)
            tokens, chosen = transfer(SHARP(x)[:, window], config.temperature, "low_confidence", *given)
            x[:, window][chosen] = tokens[chosen]
            window = part
    rule = config if threshold is None else DecodeConfig(**{**config.to_dict(), "commit": "threshold"})
    (ours,) = decode(SHARP, torch.tensor([PROMPT]), rule, side_of_rows([key], CPU), seeds=[5])
    assert x[0, 4:].tolist() == ours.token_ids
