"""The benchmark for GPUs runs with a tiny network on a machine without one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_support import benchmark

gpu = benchmark("gpu")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run it as a command on the CPU; gives what it prints."""

    def main(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["gpu.py", "--device", "cpu", *arguments])
        gpu.main()
        return capsys.readouterr().out

    return main


@pytest.mark.soak
def test_every_mode_runs_with_a_tiny_network(run: Callable[..., str], tmp_path: Path) -> None:
    printed = run("--small", "--out", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["failed"], found["left out"]) == ({}, [])
    kinds = {"lookahead 3": ("none", "position")}
    wanted = [(*mode[:3], kind) for mode in gpu.modes(gpu.SMALL) for kind in kinds.get(mode.name, gpu.KINDS)]
    assert [(row["runtime"], row["batch"], row["mode"], row["keys"]) for row in found["rows"]] == wanted
    assert len(wanted) == 2 * (2 * 3 * 4) + 4 + 2
    assert all(tuple(row) == gpu.COLUMNS and row["ms a step"] > 0 < row["forward ms"] for row in found["rows"])
    assert printed.count("| batch | mode | keys |") == 1
    torch._dynamo.reset()


def test_without_time_it_says_what_is_left_out(run: Callable[..., str], tmp_path: Path) -> None:
    printed = run("--small", "--seconds", "-1", "--out", str(tmp_path / "none.json"))
    assert "left out: eager, batch 2, none; eager, batch 2, prefix" in printed
    assert json.loads((tmp_path / "none.json").read_text())["rows"] == []


def test_a_mode_that_fails_leaves_what_it_measured_and_the_others(tmp_path: Path) -> None:
    def broken() -> Any:
        yield {"a": 1}
        raise RuntimeError("out of memory\nand more")

    results, (mode, other, *_) = gpu.machine(torch.device("cpu")), gpu.modes(gpu.SMALL)
    gpu.measure(mode, broken(), results, tmp_path / "found.json")
    gpu.measure(other, iter([{"b": 2}]), results, tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failed"] == {"eager, batch 2, none": "RuntimeError: out of memory"}
    assert found["rows"] == [{"a": 1}, {"b": 2}]
