"""Compiled networks: the sessions call what was compiled, and the texts stay."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dgmark import load_model
from dgmark.errors import SettingsError
from dgmark.models.compiled import compile_network
from support import tiny_checkpoints as tiny
from support.fresh_process import run_fresh
from support.unchecked import unchecked


@pytest.fixture(autouse=True)
def fresh_compiler() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.soak
def test_each_shape_is_compiled_once_and_the_texts_stay(tmp_path: Path) -> None:
    tiny.write(tmp_path, "llada", n_layers=1)
    code = f"""
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from dgmark import generate, load_model
from dgmark.models.compiled import compile_network
options = dict(key=None, length=56, block_length=8, steps=14, round_trip_check=False)
for cache in ("none", "prefix"):
    torch._dynamo.reset()
    model, backend = load_model({str(tmp_path)!r}, dtype="fp32", device="cpu"), CompileCounterWithBackend("eager")
    def texts():
        return generate(model, [[5, 9], [6, 2]], cache=cache, **options)
    expected = texts()
    assert compile_network(model.network, backend)
    counts = [backend.frame_count]
    for _ in range(2):
        assert texts() == expected
        counts.append(backend.frame_count)
    print(*counts)
"""
    counts = [[int(count) for count in line.split()] for line in run_fresh(code).splitlines()]
    without, cached = (first - probe for probe, first, _ in counts)
    assert 1 <= without <= 2
    assert cached > 8  # torch's own limit
    assert all(second == first for _, first, second in counts)


def test_a_network_that_cannot_be_compiled_runs_as_it_is_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write(tmp_path, "llada")
    model = tiny.load(tmp_path)
    before = model(tiny.random_ids(8))

    def broken(*_: Any) -> Any:
        raise RuntimeError("no compiler here\nbut more lines")

    with pytest.warns(UserWarning, match="is not compiled, and runs as it is: .*no compiler here"):
        assert not compile_network(model.network, broken)
    monkeypatch.setattr(model.network, "hf_device_map", {"a": 0, "b": 1}, raising=False)
    with pytest.warns(UserWarning, match="it is spread over 2 devices"):
        assert not compile_network(model.network, "eager")
    assert torch.equal(model(tiny.random_ids(8)), before)


def test_load_model_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(tmp_path, "llada")
    networks: list[Any] = []
    monkeypatch.setattr(sys.modules["dgmark.models.load"], "compile_network", networks.append)
    for wanted in (None, False, True):
        model = tiny.load(tmp_path, compile=wanted)
    assert networks == [model.network]
    with pytest.raises(SettingsError, match=r"compile \(--compile\) is not an option of a model that MLX computes"):
        load_model(str(tmp_path), device="mlx", compile=True)
    with unchecked(), pytest.raises(SettingsError, match="compile"):
        load_model(str(tmp_path), compile="yes")  # type: ignore[arg-type]
