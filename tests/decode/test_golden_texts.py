"""Texts that every way of decoding wrote when they were committed: the same token ids, on any machine.

The toys' logits are exact, so no rounding of a processor decides a token. The texts change only on purpose. To write
them anew: `PYTHONPATH=tests python tests/decode/test_golden_texts.py`
"""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from dgmark import Denoiser, Infilling, WatermarkKey, generate, infill, stream_generate
from dgmark.decode import Generation, RowFinished
from dgmark.models.denoiser import BlockOrigin, ConfidenceSource
from dgmark.models.toy import ToyDenoiser
from support.cases import data
from support.goldens import check_equal, order_of_commits, read_golden, words_of, write_golden
from support.gpu import CUDA
from support.known_keys import bound_key
from support.unchecked import unchecked
from support.word_model import WordModel, text_of

GOLDEN = Path(__file__).parents[1] / "golden" / "texts.json"

Options = dict[str, Any]
SHORT: Options = {"length": 18, "block_length": 6}
# 12 prompts of three lengths, so that batches of four have some of one length
PROMPTS = [" ".join(f"w{(7 * row + 3 * place) % 40}" for place in range(1 + row % 3)) for row in range(12)]
HOLES: list[list[str | int]] = [[f"w{row} w2 w3", 4 + row % 3, "w4 w5", 6, f"w6 w{row + 7}"] for row in range(12)]


@dataclass(frozen=True)
class AsDream(ToyDenoiser):
    """A toy that is decoded as Dream is."""

    confidence_source: ConfidenceSource = "sampling"
    defaults: Options = field(default_factory=lambda: {"strategy": "entropy", "schedule": "dream", "steps": 9})


@dataclass(frozen=True)
class AsLLaDA2(ToyDenoiser):
    """A toy that is decoded as LLaDA 2.1 is, with edits."""

    confidence_source: ConfidenceSource = "sampling"
    block_origin: BlockOrigin = "canvas"
    block_multiple: int | None = 24
    defaults: Options = field(default_factory=lambda: {"commit": "threshold", "threshold": 0.3, "edit_threshold": 0.2})


MODELS: dict[str, Denoiser] = {
    "toy": ToyDenoiser(words=60, end_bias=0.5, forbidden_bias=9.0),
    "sure": ToyDenoiser(words=60, spread=40.0),  # confidences on both sides of a threshold
    "as Dream": AsDream(words=60),
    "as LLaDA 2": AsLLaDA2(words=60, spread=20.0),
    "word pieces": WordModel(words=256 + 400 + 20, end_bias=3.0),  # many of whose neighbours would be one token
}

# the options of a key
KEYS: dict[str, Options] = data(__file__, "keys")
ANY: list[Options] = data(__file__, "of_any_rule")
OF_POSITIONS: list[Options] = data(__file__, "of_positions")


@dataclass(frozen=True)
class Case:
    """One way to write 12 texts.

    Attributes:
        model: the name of the model.
        key: the name of the key; None for text without a mark.
        settings: the decoding settings.
        way: generate, or infill with given holes, or infill with a share of words to replace.
    """

    model: str
    key: str | None
    settings: Options = field(default_factory=dict)
    way: str = "generate"

    @property
    def name(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        return f"{self.way} / {self.model} / {self.key or 'unmarked'} / {settings or 'defaults'}"


def cases() -> list[Case]:
    """Every key at the defaults, every setting under both rules and without a mark, and every model."""
    rules = (None, "bigram", "position")
    found = [Case("toy", key) for key in (None, *KEYS)]
    found += [Case("toy", key, settings) for settings in ANY for key in rules if key or not needs_key(settings)]
    found += [Case("toy", "position", settings) for settings in OF_POSITIONS]
    found += [Case("toy", "position modulus 3, rotation 4", {"lookahead": 3})]
    found += [Case("sure", key, {"commit": "threshold", "threshold": share}) for share in (0.3, 0.9) for key in rules]
    found += [Case("sure", "position", {"commit": "threshold", "threshold": 0.5, "lookahead": 3})]
    found += [Case(model, key) for model in ("as Dream", "as LLaDA 2") for key in rules]
    found += [Case("word pieces", key, {"round_trip_check": check}) for check in (True, False) for key in rules]
    found += [Case("toy", key, {"block_length": 8}, "infill") for key in (*rules, "sub-keys")]
    found += [Case("toy", "position", {"lookahead": 3}, "infill")]
    found += [Case("word pieces", key, {"share": 0.5}, "infill") for key in ("bigram", "position")]
    found += [Case("word pieces", "words"), Case("word pieces", "words", {"edit_threshold": 0.1, "bias": 0.5})]
    return [*found, Case("word pieces", "words", {"share": 0.5}, "infill")]


def needs_key(settings: Options) -> bool:
    """Whether text without a mark has no use for these settings."""
    return "alpha" in settings or "bias" in settings


@cache
def key_of(model: str, name: str) -> WatermarkKey:
    key = bound_key(f"golden {name}", MODELS[model], **KEYS[name])
    return key.subkey(77) if key.num_subkeys > 1 else key


def options_of(case: Case) -> Options:
    key = None if case.key is None else key_of(case.model, case.key)
    return {"key": key, "seed": 11, **({} if case.way == "infill" else SHORT), **case.settings}


@cache
def model_on(name: str, device: str) -> Denoiser:
    model = MODELS[name]
    assert isinstance(model, ToyDenoiser)
    return model if device == "cpu" else replace(model, device=torch.device(device))


def written(case: Case, device: str = "cpu") -> list[Generation] | list[Infilling]:
    """The texts of a case, computed on a device."""
    model = model_on(case.model, device)
    if "share" in case.settings:
        return infill(model, [text_of(24, seed) for seed in range(4)], **options_of(case))
    if case.way == "infill":
        return infill(model, HOLES, **options_of(case))
    return generate(model, prompts_of(case), batch_size=4, **options_of(case))


def prompts_of(case: Case) -> list[str]:
    return [text_of(1 + row % 3, row) for row in range(12)] if case.model == "word pieces" else PROMPTS


def figures(case: Case, device: str = "cpu") -> Options:
    """The ids of each text, and the order in which the first three were committed."""
    texts = written(case, device)
    return {
        "ids": [words_of(text.token_ids) for text in texts],
        "commits": [order_of_commits(text.trace) for text in texts[:3]],
    }


def test_every_case_is_committed() -> None:
    assert [case.name for case in cases()] == [*read_golden(GOLDEN)]


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_texts_are_those_committed_on_each_device(case: Case, device: str) -> None:
    """The logits are exact and the draws are those of counters, so that no device changes a token."""
    with unchecked():
        check_equal(figures(case, device), read_golden(GOLDEN)[case.name], case.name)


@pytest.mark.parametrize("key", [None, "bigram", "position"])
def test_alone_and_as_a_stream_the_texts_are_those_committed(key: str | None) -> None:
    case = Case("toy", key)
    ids = read_golden(GOLDEN)[case.name]["ids"]
    with unchecked():
        alone = generate(MODELS["toy"], PROMPTS, batch_size=1, **options_of(case))
        assert [words_of(text.token_ids) for text in alone] == ids
        events = stream_generate(MODELS["toy"], PROMPTS, batch_size=4, **options_of(case))
        streamed = {event.row: event.generation for event in events if isinstance(event, RowFinished)}
    assert [words_of(streamed[row].token_ids) for row in range(12)] == ids


def test_the_cases_differ() -> None:
    """A setting that did nothing would be held to nothing."""
    ids = [str(row["ids"]) for row in read_golden(GOLDEN).values()]
    assert len({*ids}) == len(ids)


if __name__ == "__main__":
    write_golden(GOLDEN, {case.name: figures(case) for case in cases()})
