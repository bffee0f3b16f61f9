"""The blocks of docs/coming-from.md run in turn, and what its tables name is there."""

import re
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import transformers
from transformers.generation import watermarking

import dgmark

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_block_runs_and_the_marks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = iter(range(1, 100))
    monkeypatch.setattr("secrets.token_bytes", lambda size: bytes([next(secrets)] * size))  # the same in every run
    monkeypatch.setattr("secrets.randbelow", lambda below: 7 % below)
    session: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "coming-from.md", "exec"), session)
    texts, key = session["texts"], session["key"]
    assert [found.verdict for found in session["detector"].detect_many(texts)] == ["watermarked"] * 2
    assert session["detector"].detect(session["plain"][0].text).verdict != "watermarked"
    assert session["as_before"].fpr == pytest.approx(3.167e-5, rel=1e-3)  # the tail of z = 4
    assert session["several"].key_fingerprint == key.fingerprint
    assert (session["found"].verdict, session["disguised"].verdict) == ("watermarked", "watermarked")
    assert session["matched"].count(True) > len(session["matched"]) / 2
    assert session["spans"]


def first_cells(heading: str) -> str:
    """The names that another library's column of a table has."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return " ".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `"))


def test_the_names_of_transformers_are_those_of_the_installed_version() -> None:
    stated = first_cells("transformers")
    options = set(signature(transformers.WatermarkingConfig.__init__).parameters) - {"self"}
    assert {name for name in options if f"`{name}" in stated} == options
    expected = {"input_ids", "z_threshold", "return_dict"}
    assert set(signature(transformers.WatermarkDetector.__call__).parameters) >= expected
    of_output = {one.name for one in fields(watermarking.WatermarkDetectorOutput)}
    assert {name for name in of_output if f"`{name}`" in stated} == of_output - {"num_green_tokens"}
    for name in re.findall(r"`(SynthIDText\w+)`", PAGE):
        assert hasattr(transformers, name)


def test_the_fields_of_a_result_that_the_page_names_are_there() -> None:
    stated = set(re.findall(r"`(verdict|num_\w+|\w+_fraction|\w_\w+|p_value)`", PAGE)) - {"num_scored_tokens"}
    assert stated <= {one.name for one in fields(dgmark.Detection)}
    assert {"verdict", "p_value", "z_score", "num_tokens_scored", "green_fraction"} <= stated
