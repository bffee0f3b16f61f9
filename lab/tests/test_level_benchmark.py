"""The table of levels: its lines, what they count, and a run that goes on."""

import sys
from pathlib import Path

import pytest
from lab_support import benchmark

LINES = ["--passages", "2", "--keys", "3", "--test", "rule=bigram", "--test", "rule=kgw,delta=2"]


def test_levels_of_texts_that_a_program_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    level = benchmark("level")
    human = tmp_path / "human.jsonl"
    human.write_text("".join(f'{{"id": "{n}", "text": "{"one two three four five " * 20}"}}\n' for n in range(2)))
    monkeypatch.setattr(level, "RUNS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["level.py", str(human), *LINES])
    level.main()
    first = capsys.readouterr().out
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines()[2:] if line]
    found = {tuple(line[:3]): line[3:] for line in lines if line}
    assert found["rule=bigram", "p", "human"][0] == "6"
    assert found["rule=bigram", "whole text", "built: CSV"][-3:-1] == ["", ""]  # each text has keys of its own
    assert found["rule=kgw,delta=2", "published", "all human text"][0] == "6"
    # two texts that are the same have the same luck under each key
    worst, both = found["rule=bigram", "p", "human"][-3:-1]
    assert (float(worst) == 1) == (int(both) > 0)
    monkeypatch.setattr(level, "p_values_of", pytest.fail)  # nothing is computed again
    level.main()
    assert capsys.readouterr().out == first
