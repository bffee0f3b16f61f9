"""What the loop reads of a model in addition to logits, and the defaults for a model that states nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark import generate
from dgmark.decode import DecodeConfig
from dgmark.errors import ModelFault, SettingsError
from dgmark.models.denoiser import BlockOrigin, CacheMode, ConfidenceSource, Session, Traits, open_session, traits_of
from dgmark.models.toy import ToyDenoiser
from support.fresh_process import run_fresh
from support.known_keys import bound_key
from support.unchecked import unchecked


@dataclass(frozen=True)
class Particular(ToyDenoiser):
    """A toy that states every trait."""

    defaults: dict[str, object] = field(default_factory=lambda: {"block_length": 8})
    confidence_source: ConfidenceSource = "sampling"
    block_origin: BlockOrigin = "canvas"
    block_multiple: int = 16
    pads: bool = True
    opened: list[Tensor | None] = field(default_factory=list)

    def session(self, cache: CacheMode, padding: Tensor | None = None) -> Session:
        self.opened.append(padding)
        return open_session(ToyDenoiser(), cache)


def test_the_traits_that_a_model_states_hold() -> None:
    model = Particular()
    traits = traits_of(model)
    assert dict(traits.defaults) == {"block_length": 8}
    assert (traits.confidence_source, traits.block_origin, traits.block_multiple) == ("sampling", "canvas", 16)
    assert traits.pads


def test_padding_reaches_a_model_that_takes_it_and_only_if_there_is_any() -> None:
    model, padding = Particular(), torch.tensor([0, 3])
    open_session(model, "none", padding)
    open_session(model, "none", torch.zeros(2, dtype=torch.long))
    open_session(model)
    assert model.opened[0] is padding
    assert model.opened[1:] == [None, None]


def test_padding_is_refused_by_a_model_that_would_attend_to_it() -> None:
    with pytest.raises(SettingsError, match="toy cannot leave padding out"):
        open_session(ToyDenoiser(), "none", torch.tensor([0, 3]))


# ---- traits ----


@dataclass(frozen=True)
class WithTraits(ToyDenoiser):
    """A toy that states its traits in one object; its attributes do not count."""

    pads: bool = False
    traits: Traits = field(default_factory=lambda: Traits("named", dtype="float8", pads=True))


class Own:
    """A user's own model, with what a denoiser must have and nothing else."""

    mask_id, end_ids, vocab_size, context_length = 0, (1,), 32, 64

    def __init__(self, answer: Callable[[Tensor], object]) -> None:
        self.tokenizer = ToyDenoiser().tokenizer
        self.answer = answer

    def __call__(self, ids: Tensor) -> Any:
        return self.answer(ids)


def test_a_model_may_state_its_traits_in_one_object() -> None:
    traits = traits_of(WithTraits())
    assert traits == Traits("named", torch.device("cpu"), "float8", pads=True)
    assert traits.number_format == "float8"


def test_a_model_that_states_nothing_is_called_by_its_class() -> None:
    traits = traits_of(Own(ToyDenoiser()))
    assert traits == Traits(name="Own")
    assert (traits.device, traits.number_format) == (torch.device("cpu"), None)


@pytest.mark.parametrize(("trait", "value"), [("confidence_source", "softmax"), ("block_origin", "prompt")])
def test_an_invalid_trait_is_refused(trait: str, value: str) -> None:
    model = Own(ToyDenoiser())
    setattr(model, trait, value)
    with unchecked(), pytest.raises(SettingsError, match=f"Own states {trait} '{value}', which is not one of: "):
        traits_of(model)


# ---- logits ----

TOY = ToyDenoiser()


@pytest.mark.parametrize(
    ("answer", "came"),
    [
        (lambda ids: TOY(ids)[..., :-2], r"logits of shape \(1, 9, 30\)"),
        (lambda ids: TOY(ids)[:, 1:], r"logits of shape \(1, 8, 32\)"),
        (lambda ids: {"logits": TOY(ids)}, "a dict"),
        (lambda _ids: None, "a NoneType"),
        (lambda ids: TOY(ids).long(), "logits of dtype int64"),
        (lambda ids: TOY(ids).to(torch.float8_e4m3fn), "logits of dtype float8_e4m3fn, with which torch .*"),
        (lambda ids: TOY(ids).to(torch.float8_e5m2), "logits of dtype float8_e5m2, with which torch .*"),
        (lambda ids: TOY(ids).to("meta"), "logits on meta"),
    ],
    ids=["too few ids", "too few positions", "no tensor", "nothing", "whole numbers", "e4m3", "e5m2", "another device"],
)
def test_a_result_that_is_not_what_a_forward_gives_is_an_error(answer: Callable[[Tensor], object], came: str) -> None:
    expected = rf"Own gave {came}, where floating-point numbers of shape \(1, 9, 32\) on cpu were expected.*the 32 ids"
    with unchecked(), pytest.raises(ModelFault, match=expected) as caught:
        generate(Own(answer), "w1", key=None, length=8, block_length=4)
    assert caught.value.rows == (0,)


@pytest.mark.parametrize("lookahead", [1, 3])
@pytest.mark.parametrize("forwards", [0, 3, 6])
def test_too_few_canvases_are_an_error_that_names_the_rows(lookahead: int, forwards: int) -> None:
    """A lookahead has several canvases for a row."""
    toy = replace(TOY, end_bias=-9.0)  # no row ends before the others
    first, second = (toy.tokenizer.encode(prompt) for prompt in ("w1", "w2"))
    calls: list[list[list[int]]] = []

    def answer(ids: Tensor) -> Tensor:
        calls.append(ids[:, :1].tolist())
        return toy(ids)[1 if len(calls) > forwards else 0 :]

    key = bound_key("canvases", TOY, rule="position")
    with unchecked(), pytest.raises(ModelFault, match=r"Own gave logits of shape .*, where .* were expected") as caught:
        generate(Own(answer), ["w1", "w2"], key=key, length=8, block_length=4, lookahead=lookahead)
    assert caught.value.rows == tuple(row for row, prompt in enumerate([first, second]) if prompt in calls[-1])
    assert max(map(len, calls)) >= (2 if forwards == 0 else 1 + lookahead)


class ShortWindows(ToyDenoiser):
    """A toy that is its own session, whose windows are too small."""

    def session(self, cache: CacheMode) -> Session:  # noqa: ARG002
        return self

    def begin(self, ids: Tensor, start: int, stop: int) -> Tensor:
        return self(ids)[:, start : stop - 1]

    def step(self, ids: Tensor, owner: Tensor, start: int, stop: int) -> Tensor:  # noqa: ARG002
        return self.begin(ids, start, stop)

    def keep(self, rows: Tensor) -> None:
        pass


def test_windows_of_another_shape_are_an_error() -> None:
    with pytest.raises(ModelFault, match=r"toy gave logits of shape \(1, 3, 32\), where .*\(1, 4, 32\)"):
        generate(ShortWindows(), "w1", key=None, length=8, block_length=4)


def test_a_model_of_ones_own_writes_as_any_other() -> None:
    made = generate(Own(TOY), "w1", key=None, length=8, block_length=4)[0]
    assert made.token_ids == generate(TOY, "w1", key=None, length=8, block_length=4)[0].token_ids
    assert (made.model, made.dtype) == ("Own", None)


@pytest.mark.slow
def test_a_model_of_ones_own_needs_no_transformers() -> None:
    code = """
import sys

import dgmark
from dgmark.models.toy import ToyDenoiser

toy = ToyDenoiser(end_bias=-9.0)  # no text ends before its mark


class Own:
    mask_id, end_ids, vocab_size, context_length, tokenizer = 0, (1,), toy.vocab_size, 64, toy.tokenizer

    def __call__(self, ids):
        return toy(ids)


key = dgmark.WatermarkKey.generate(Own(), rule="position")
dgmark.generate(Own(), "w1", key=key, length=8, block_length=4, lookahead=2)
list(dgmark.stream_generate(Own(), "w1", key=key, length=8, block_length=4))
dgmark.infill(Own(), [["w1", 4]], key=key, block_length=4)
print(sorted({"torch", "transformers", "safetensors"} & set(sys.modules)))
"""
    assert run_fresh(code).strip() == "['torch']"


# ---- decoding settings of a model ----

OPINIONATED = Particular(defaults={"length": 24, "block_length": 8, "lookahead": 2}, block_multiple=8)


def test_settings_of_the_user_come_before_the_models_and_the_packages() -> None:
    config = DecodeConfig.of(OPINIONATED, temperature=0.5, lookahead=3)
    assert (config.length, config.block_length, config.lookahead, config.temperature) == (24, 8, 3, 0.5)
    assert config.strategy == DecodeConfig().strategy
    assert DecodeConfig.of(ToyDenoiser()) == DecodeConfig()


def test_generate_uses_the_models_defaults_and_says_so() -> None:
    (made,) = generate(OPINIONATED, "w1 w2 w3", key=None)
    assert made.settings == DecodeConfig.of(OPINIONATED).to_dict()
    assert max(made.trace.position) < 24


@pytest.mark.parametrize("block_length", [3, 16, 5])
def test_a_block_that_the_models_mask_does_not_hold_is_refused(block_length: int) -> None:
    with pytest.raises(SettingsError, match=f"blocks of 8: block length {block_length} does not divide"):
        DecodeConfig.of(OPINIONATED, block_length=block_length, length=240)
