"""A model that computes NaN or infinities gives a `ModelFault`, and never a text."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dgmark
from dgmark.decode import RowFinished
from dgmark.errors import ModelFault
from dgmark.models import load as loading
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.attacks.refill import Refill
from support.command_line import rows as rows_of
from support.command_line import run
from support.known_keys import bound_key
from support.toy_experiments import ANY_LENGTH, toy_baseline

Spoil = Callable[[Tensor, Tensor], Tensor]
NAN, INF = float("nan"), float("inf")
SHORT: dict[str, Any] = {"length": 8, "block_length": 4}
KEY, PAIRS = (bound_key("faults", ToyDenoiser(), rule=rule) for rule in ("position", "bigram"))


def everywhere(value: float) -> Spoil:
    return lambda logits, _ids: torch.full_like(logits, value)


all_nan = everywhere(NAN)


def one_id(value: float, token: int = 5) -> Spoil:
    return lambda logits, _ids: logits.index_fill(-1, torch.tensor([token]), value)


def one_place(value: float, place: int = 4) -> Spoil:
    return lambda logits, _ids: logits.index_fill(1, torch.tensor([place]), value)


def only_forbidden(logits: Tensor, _ids: Tensor) -> Tensor:
    """Leave finite logits only to the mask, which must not be written."""
    spoilt = torch.full_like(logits, -INF)
    spoilt[..., 0] = 1
    return spoilt


SPOILS: dict[str, tuple[Spoil, str]] = {
    "NaN": (everywhere(NAN), "NaN"),
    "+inf": (everywhere(INF), r"\+inf"),
    "-inf": (everywhere(-INF), "-inf for every id"),
    "NaN at one id": (one_id(NAN), "NaN"),
    "+inf at one id": (one_id(INF), r"\+inf"),
    "NaN at a forbidden id": (one_id(NAN, 0), "NaN"),
    "NaN at one position": (one_place(NAN), "NaN"),
    "-inf at one position": (one_place(-INF), "-inf for every id"),
    "nothing that may be written": (only_forbidden, "-inf for every id that may be written"),
}


@dataclass(frozen=True)
class Spoilt(ToyDenoiser):
    """A toy whose logits are spoilt."""

    end_ids: tuple[int, ...] = ()
    spoil: Spoil = all_nan

    def __call__(self, ids: Tensor) -> Tensor:
        return self.spoil(super().__call__(ids), ids)


EITHER: list[dict[str, Any]] = [{}, {"strategy": "left_to_right"}, {"commit": "threshold"}, {"steps": 2}]
POSITION: list[dict[str, Any]] = [
    {"lookahead": 3},
    {"strategy": "entropy", "min_relative_reward": 0.2},
    {"strategy": "random"},
]


@pytest.mark.cover(2)
@pytest.mark.parametrize(
    ("key", "settings"),
    [
        *((KEY, {"temperature": temperature, **more}) for temperature in (0, 1) for more in [*EITHER, *POSITION]),
        (KEY, {"temperature": 0, "strategy": "margin"}),
        (KEY, {"alpha": 1.0}),
        *((key, {"top_k": 3, "top_p": 0.5}) for key in (KEY, PAIRS)),
        *((PAIRS, {"temperature": temperature, "bias": 1.0, **more}) for temperature in (0, 1) for more in EITHER),
        (PAIRS, {"strategy": "entropy"}),
    ],
    ids=lambda one: one.spec.rule if isinstance(one, dgmark.WatermarkKey) else str(one),
)
@pytest.mark.parametrize("name", SPOILS)
def test_no_text_comes_of_unusable_logits(name: str, key: dgmark.WatermarkKey, settings: dict[str, Any]) -> None:
    spoil, came = SPOILS[name]
    with pytest.raises(
        ModelFault, match=f"toy gave {came}.* in step 0, at .* positions of the block .*check the weights"
    ):
        dgmark.generate(Spoilt(spoil=spoil), ["w1 w2", "w3 w4"], key=key, **SHORT, **settings)


@pytest.mark.cover(1)
@pytest.mark.parametrize("name", SPOILS)
@pytest.mark.parametrize("marked_by", ANY_LENGTH)
def test_no_baseline_makes_a_text_of_unusable_logits(marked_by: str, name: str) -> None:
    with pytest.raises(ModelFault, match=f"toy gave {SPOILS[name][1]}"):
        dgmark.generate(Spoilt(spoil=SPOILS[name][0]), "w1 w2", key=toy_baseline(marked_by, KEY), **SHORT)


@pytest.mark.parametrize("name", SPOILS)
def test_neither_a_stream_nor_an_infilling_nor_a_refill_ends_in_text(name: str) -> None:
    spoil, came = SPOILS[name]
    model = Spoilt(spoil=spoil)
    finished = []
    with pytest.raises(ModelFault, match=came):
        finished += [e for e in dgmark.stream_generate(model, "w1 w2", key=KEY, **SHORT) if isinstance(e, RowFinished)]
    assert not finished
    with pytest.raises(ModelFault, match=came):
        dgmark.infill(model, [["w1", 8, "w2"]], key=KEY, block_length=4)
    with pytest.raises(ModelFault, match=came):
        Refill(1 / 2, "tokens", model, {"block_length": 4})(" ".join(["w1"] * 16), np.random.default_rng(1))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("key", "bias"), [(KEY, 0.0), (PAIRS, 1.0)], ids=["position", "bigram"])
def test_ids_may_be_ruled_out_with_minus_infinity(key: dgmark.WatermarkKey, bias: float, temperature: float) -> None:
    ruled_out = torch.tensor([0, 5, 6, 7, *range(26, 32)])
    model = Spoilt(spoil=lambda logits, _ids: logits.index_fill(-1, ruled_out, -INF))
    (made,) = dgmark.generate(model, "w1 w2", key=key, temperature=temperature, bias=bias, **SHORT)
    assert made.token_ids
    assert not set(made.token_ids) & {5, 6, 7}


def test_logits_that_overflow_at_the_temperature_are_a_fault() -> None:
    model = Spoilt(spoil=lambda logits, _ids: logits.float() * 1e37)
    with pytest.raises(ModelFault, match=r"toy gave \+inf"):
        dgmark.generate(model, "w1 w2", key=KEY, temperature=0.05, **SHORT)


def later(logits: Tensor, ids: Tensor) -> Tensor:
    """Spoil the second block of the canvases that begin with w3."""
    at_fault = (ids[:, 0] == 5) & ~(ids[:, 2:6] == 0).any(1)
    return torch.where(at_fault[:, None, None], NAN, logits)


def test_a_fault_says_which_rows_step_and_positions() -> None:
    prompts = ["w1 w2", "w4 w4", "w3 w1", "w9 w2"]
    with pytest.raises(ModelFault) as caught:
        dgmark.generate(Spoilt(end_ids=(), spoil=later), prompts, key=KEY, batch_size=2, **SHORT)
    assert caught.value.rows == (2,)
    assert re.search(
        r"gave NaN in step 4, at 4 of 8 positions of the block \(places 4 to 7 of what is to be written\).*"
        r"\(row 2, counted from 0\)",
        str(caught.value),
    )


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_network_with_a_broken_weight_is_a_fault_under_every_cache(
    storyteller: NetworkDenoiser, cache: Any, temperature: float
) -> None:
    weight = next(storyteller.network.parameters())
    kept = weight.data[100, 0].clone()
    weight.data[100, 0] = NAN  # the output matrix is the embedding: one bad column
    try:
        with pytest.raises(ModelFault, match="storyteller gave NaN in step 0"):
            dgmark.generate(storyteller, "Once", key=None, cache=cache, temperature=temperature, lookahead=2, **SHORT)
    finally:
        weight.data[100, 0] = kept


def test_the_rows_of_a_command_that_are_not_at_fault_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(model: ToyDenoiser) -> None:
        monkeypatch.setattr(loading, "load_model", lambda **_: model)

    prompts, out, key = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl", tmp_path / "key.json"
    KEY.save(key)
    texts = ["w1 w2", "w3 w4", "w5 w6", "w3 w1", "w9 w2"]
    prompts.write_text("".join(json.dumps({"id": text, "prompt": text}) + "\n" for text in texts))
    command = ["generate", "--key", key, "--prompts", prompts, "--out", out, "--batch-size", 3]
    command += ["--length", 8, "--block-length", 4]
    load(Spoilt(end_ids=(), spoil=later))
    assert "errors in 2 of 5 rows" in run(*command, code=0).output
    rows = {row["id"]: row for row in rows_of(out.read_text())}
    assert set(rows) == set(texts)
    assert [text for text in texts if "error" in rows[text]] == ["w3 w4", "w3 w1"]
    assert "gave NaN" in rows["w3 w4"]["error"]
    load(ToyDenoiser(end_ids=()))
    run(*command, code=0)
    mended = {row["id"]: row for row in rows_of(out.read_text())}
    assert not [text for text in texts if "error" in mended[text]]
    assert all(mended[text] == rows[text] for text in texts if "error" not in rows[text])
