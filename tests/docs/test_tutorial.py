"""The tutorial and the notebook run as they stand, the notebook from its first cell to its last."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def run_line(line: str) -> str:
    """One `dgmark` command, its output written where `>` says."""
    words = shlex.split(line, comments=True)
    target = words[words.index(">") + 1] if ">" in words else None
    arguments = words[1 : words.index(">")] if target else words[1:]
    result = run(*arguments)
    assert result.exit_code == 0, f"{line}\n{result.output}"
    if target:
        Path(target).write_text(result.stdout, encoding="utf-8")
    return result.stdout


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs_and_the_marks_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("secrets.token_bytes", lambda size: bytes(range(size)))  # the same texts in every run
    monkeypatch.setattr("secrets.randbelow", lambda below: 7 % below)
    session: dict[str, Any] = {}
    shown: dict[str, str] = {}
    for language, source in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(source, str(PAGE), "exec"), session)
        else:
            shown |= {line: run_line(line) for line in source.replace("\\\n", " ").splitlines()}
    detections = {line.split()[-1]: output for line, output in shown.items() if line.startswith("dgmark detect")}
    assert {
        name: "This text carries the watermark" in " ".join(output.split()) for name, output in detections.items()
    } == {
        "text.txt": True,
        "plain.txt": False,
        "own-text.txt": True,
    }
    assert set(re.findall(r"key ([0-9a-f]{16})", PAGE.read_text(encoding="utf-8"))) == {session["key"].fingerprint}
    detector = session["detector"]
    assert detector.detect(session["marked"].text).verdict == "watermarked"
    assert detector.detect(session["plain"].text).verdict == "not_detected"


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@pytest.mark.soak
def test_every_cell_runs_and_shows_what_its_text_says(
    notebook: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("secrets.token_bytes", lambda size: bytes(range(size)))  # the same texts in every run
    session: dict[str, Any] = {}
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number} of {NOTEBOOK.name}", "exec"), session)
    detector = session["detector"]
    assert detector.detect(session["marked"]).verdict == "watermarked"
    assert detector.detect(session["plain"]).verdict == "not_detected"
    assert "Watermark found" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert session["tried"][-1][0] < session["tried"][0][0]  # the lowest temperature gives the better text
    assert len(session["plt"].get_fignums()) == 4
    session["plt"].close("all")
