"""What several tests of the lab share: tables of cases, files of rows, benchmarks, the numbers of a report."""

import importlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dgmark_lab.evaluate.estimates import Estimate
from dgmark_lab.experiments.spec import Experiment, load_experiment
from dgmark_lab.experiments.tables import Section

HERE = Path(__file__).parent
# the cases of tests that are tables of plain data, by what they are
CASES: dict[str, Any] = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))


def experiment_of(name: str) -> Experiment:
    """An experiment of the tests."""
    return load_experiment(str(HERE / "experiments" / f"{name}.toml"))


def rows_of(*paths: Path) -> list[dict[str, Any]]:
    """The rows of JSON Lines files."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write a JSON Lines file, and return its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def benchmark(name: str) -> Any:
    """A script of lab/benchmarks as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE.parent / "benchmarks"))
        return importlib.import_module(name)


def numbers_of(section: Section) -> dict[tuple[str, str], Estimate]:
    """What was measured, by cell and quantity."""
    return {(one.cell, one.name): one.ours for one in section.quantities if one.ours is not None}
