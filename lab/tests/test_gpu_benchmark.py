"""The benchmark for GPUs runs with a tiny network on a machine without one."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
COLUMNS = {
    "batch", "mode", "keys", "runtime", "ms a step", "tokens a second", "of unmarked", "the mark's share", "forward ms",
    "peak GB", "waits a step",
}  # fmt: skip
KINDS = ("none", "one", "256", "each")
CACHES = ("none", "prefix", "dual")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


def run(*arguments: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), "--device", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout


def test_every_part_runs_with_a_tiny_network(tmp_path: Path) -> None:
    printed = run("--small", "--out", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    parts = found["parts"]
    assert (found["failed"], found["left out"]) == ({}, [])
    assert set(found["seconds"]) == set(parts)
    for batch in (1, 2):
        steps = parts[f"steps, batch {batch}"]
        assert [(row["mode"], row["keys"]) for row in steps] == [(cache, kind) for cache in CACHES for kind in KINDS]
        assert all(set(row) == COLUMNS and row["batch"] == batch and row["ms a step"] > 0 for row in steps)
        for cache in CACHES:
            compiled = parts[f"compiled, batch {batch}, cache {cache}"]
            assert [(row["mode"], row["keys"], row["runtime"]) for row in compiled] == [
                (cache, kind, "compiled") for kind in KINDS
            ]
        captured = parts[f"captured, batch {batch}"]
        assert [(row["mode"], row["keys"]) for row in captured] == [
            (mode, kind) for mode in ("no forward", "none", "dual") for kind in KINDS
        ]
        assert all(row["equal"] == row["rows"] == batch and row["eager ms"] > 0 for row in captured)
        assert all(row["captured ms"] is None for row in captured)  # on CUDA alone
    assert [row["keys"] for row in parts["equality"]] == [*KINDS, "position"]
    assert all(row["equal"] == row["rows"] for row in parts["equality"])
    assert all(row["ms"] > 0 for row in parts["detection"])
    assert {row["mode"] for row in parts["parallel"]} == {"threshold", "lookahead 3"}
    assert "| batch | mode | keys |" in printed


def test_without_a_gpu_or_time_it_says_what_is_left_out(tmp_path: Path) -> None:
    printed = run("--out", str(tmp_path / "found.json"))
    assert "The large network needs a GPU with 16 GB for batch 1, 18 GB for batch 8, 25 GB for batch 32, and" in printed
    assert "only the parts without the network are run" in printed
    parts = json.loads((tmp_path / "found.json").read_text())["parts"]
    assert set(parts) == {"equality", "detection"}
    assert all(parts.values())
    printed = run("--small", "--seconds", "-1", "--out", str(tmp_path / "none.json"))
    assert "left out: steps, batch 2; steps, batch 1; equality" in printed
    assert json.loads((tmp_path / "none.json").read_text())["parts"] == {}


@pytest.mark.parametrize(
    ("version", "trouble", "free", "batches", "says"),
    [
        (None, None, 80e9, (), "is built for CPUs: only the parts without the network"),
        (
            "13.0",
            "The driver is too old (found version 11040).\nUpdate",
            80e9,
            (),
            r"used \(The .* old \(found version 11040\)\)",
        ),
        ("13.0", "Found no NVIDIA driver on your system.", 80e9, (), r"used \(Found no NVIDIA driver on your system\)"),
        ("13.0", None, 10e9, (), "10 GB of this one are free: only the parts without the network are run"),
        ("13.0", None, 17e9, (1,), "17 GB of this one are free: batch 1 and the parts without the network are run"),
        ("13.0", None, 20e9, (1, 8), "20 GB of this one are free: batch 1 and 8 and the parts without the network"),
        ("13.0", None, 80e9, (1, 8, 32), None),
    ],
)
def test_what_the_large_network_lacks_is_one_sentence(
    gpu: Any,
    version: str | None,
    trouble: str | None,
    free: float,
    batches: tuple[int, ...],
    says: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init() -> None:
        if trouble:
            raise RuntimeError(trouble)

    monkeypatch.setattr(torch.version, "cuda", version)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 80e9))
    found, problem = gpu.fitting(gpu.LLADA, torch.device("cuda"))
    assert found == batches
    if says is None:
        assert problem is None
    else:
        assert problem.endswith("run.")
        assert "\n" not in problem
        assert re.search(says, problem)


def test_a_part_that_fails_leaves_what_it_measured_and_the_others(gpu: Any, tmp_path: Path) -> None:
    def broken() -> Any:
        yield {"a": 1}
        raise RuntimeError("out of memory\nand more")

    results = gpu.machine(torch.device("cpu"))
    gpu.measure("broken", gpu.Part("steps", broken, 1), results, tmp_path / "found.json")
    gpu.measure("whole", gpu.Part("steps", lambda: iter([{"b": 2}]), 1), results, tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failed"] == {"broken": "RuntimeError: out of memory"}
    assert found["parts"] == {"broken": [{"a": 1}], "whole": [{"b": 2}]}
