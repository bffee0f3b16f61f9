"""The loop on a device that is not the CPU: the same texts, and no more waits of the host than are stated.

Each test runs on a device that the CPU plays, and on CUDA where there is one.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark.decode import Canvas, DecodeConfig, Response, RoundTrip, decode_steps, side_of_rows
from dgmark.decode.steps.canvas import collect
from dgmark.models.denoiser import Denoiser
from dgmark.models.host import on_device, on_host, true_places
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.cases import cases
from support.gpu import CUDA, CountedCuda
from support.known_keys import bound_key
from support.other_device import DEVICE, OtherDevice
from support.word_model import WordModel

TOY = ToyDenoiser(words=40, end_bias=1.0, forbidden_bias=9.0)
SURE = ToyDenoiser(words=40, spread=40.0)  # confidences on both sides of a threshold
WORDS = WordModel(words=256 + 400 + 20, end_bias=3.0)  # many of whose neighbours would be one token
PROMPTS = torch.tensor([[5, 6, 7], [8, 9, 4], [3, 3, 3], [11, 12, 13]])
SEEDS = [0, 3, -7, 2**63 - 1]
CPU = torch.device("cpu")


@pytest.fixture(params=["stand-in", CUDA])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device that is not the CPU."""
    if request.param == "cuda":
        return torch.device("cuda")
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)  # its tensors cannot be views of inference tensors
    return DEVICE


def counting(device: torch.device) -> OtherDevice | CountedCuda:
    """What counts the waits for this device; on the CPU, which is never waited for, the stand-in finds none."""
    return CountedCuda() if device.type == "cuda" else OtherDevice()


class Counted:
    """A model whose own waits are not counted."""

    def __init__(self, model: Denoiser, mode: OtherDevice | CountedCuda) -> None:
        self._model, self._mode = model, mode
        for name in ("mask_id", "end_ids", "vocab_size", "context_length", "tokenizer"):
            setattr(self, name, getattr(model, name))  # from Python 3.12 on, `__getattr__` does not make it a Denoiser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids: Tensor) -> Tensor:
        with self._mode.uncounted():
            return self._model(ids)


def keys_of(model: Denoiser, rule: str | None) -> list[WatermarkKey | None]:
    """Keys of four rows, one of them without."""
    if rule is None:
        return [None] * len(PROMPTS)
    if rule == "position":
        one, two, three = (bound_key(name, model, modulus=m) for name, m in (("one", 2), ("two", 3), ("three", 2)))
        return [one, None, two, three]
    pairs = bound_key("pairs", model, rule="bigram", subkeys=256)
    return [pairs.subkey(3), None, pairs.subkey(200), pairs.subkey(3)]


def decoded(
    model: Denoiser, rule: str | None, settings: dict[str, Any], device: torch.device, *, check: bool = False
) -> tuple[list[Response], list[list[str]]]:
    """The responses, and the waits of each step but the first one of each block."""
    config, mode, waits = DecodeConfig(length=16, block_length=8, **settings), counting(device), list[list[str]]()
    with mode:
        canvas = Canvas.after(PROMPTS, config.length, model.mask_id).to(device)
        side = side_of_rows(keys_of(model, rule), device)
        round_trip = RoundTrip.of(model.tokenizer, model.mask_id, model.end_ids) if check else None
        steps, blocks = [], list[int]()
        for step in decode_steps(Counted(model, mode), canvas, config, side, SEEDS, round_trip):
            if blocks and blocks[-1] == step.block and not len(step.finished):
                waits.append(mode.waits)
            mode.waits = []
            blocks.append(step.block)
            steps.append(step)
        return collect(model, canvas, steps), waits


def check_equal(found: list[Response], expected: list[Response]) -> None:
    """Hold responses to others, but for the last digits of rewards, which a device may round otherwise."""
    for one, other in zip(found, expected, strict=True):
        assert one.trace.reward == pytest.approx(other.trace.reward, rel=1e-9)
        assert replace(one, trace=replace(one.trace, reward=other.trace.reward)) == other


@pytest.mark.parametrize(("name", "settings", "most", "rule"), cases(__file__, "modes"))
def test_a_device_writes_what_the_cpu_writes_and_the_host_waits_once_a_step(
    name: str, settings: dict[str, Any], most: int, rule: str | None, device: torch.device
) -> None:
    model = {"toy": TOY, "sure": SURE}[name]
    expected, none = decoded(model, rule, settings, CPU)
    found, waits = decoded(model, rule, settings, device)
    check_equal(found, expected)
    assert not any(none)  # on the CPU nothing waits
    assert waits
    assert max(map(len, waits)) == most, max(waits, key=len)


def test_the_check_of_texts_waits_once_more(device: torch.device) -> None:
    expected, _ = decoded(WORDS, "bigram", {"temperature": 0.5}, CPU, check=True)
    found, waits = decoded(WORDS, "bigram", {"temperature": 0.5}, device, check=True)
    check_equal(found, expected)
    assert min(map(len, waits)) == 2


def test_edits_are_the_same_on_a_device(device: torch.device) -> None:
    settings = {"commit": "threshold", "threshold": 0.4, "edit_threshold": 0.2}
    model = replace(SURE, spread=20.0)
    for rule in ("bigram", "position"):
        check_equal(decoded(model, rule, settings, device)[0], decoded(model, rule, settings, CPU)[0])


def test_tensors_of_any_width_are_read_together(device: torch.device) -> None:
    given = [
        torch.tensor([[True, False, True]]),
        torch.tensor([1.5, -2.5], dtype=torch.float64),
        torch.tensor([], dtype=torch.float32),
        torch.arange(5)[1:4],
        torch.tensor([0.5, 7.0, -1.0], dtype=torch.bfloat16),
        torch.arange(6).view(2, 3).T,
    ]
    mode = counting(device)
    with mode:
        there = [on_device(one, device) for one in given]
        found = on_host(*there)
    assert all(torch.equal(*pair) for pair in zip(found, given, strict=True))
    assert len(mode.waits) == 1


def test_places_are_found_without_waiting_if_their_number_is_known(device: torch.device) -> None:
    masked = torch.tensor([[False, True, True], [False, False, False], [True, False, True]])
    mode = counting(device)
    with mode:
        found = on_host(*true_places(on_device(masked, device), 4))
        assert len(mode.waits) == 1  # of the read
        on_host(*true_places(on_device(masked, device)))
        assert len(mode.waits) == 3
    assert [one.tolist() for one in found] == [one.tolist() for one in masked.nonzero(as_tuple=True)]
