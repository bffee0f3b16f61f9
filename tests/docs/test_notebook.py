"""The notebook runs from its first cell to its last, as it is committed: without outputs."""

import json
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    return json.loads(PAGE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_the_notebook_is_committed_without_outputs(notebook: dict[str, Any]) -> None:
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) == 10
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * 10
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_its_text_says(
    notebook: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("secrets.token_bytes", lambda size: bytes(range(size)))  # the same texts in every run
    session: dict[str, Any] = {}
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {number} of {PAGE.name}", "exec"), session)
    detector = session["detector"]
    assert detector.detect(session["marked"]).verdict == "watermarked"
    assert detector.detect(session["plain"]).verdict == "not_detected"
    (span,) = detector.spans(session["quoting"])
    assert abs(span.start - session["quoting"].index(session["marked"])) < 60
    assert "Watermark found" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert session["tried"][-1][0] < session["tried"][0][0]  # the largest guard gives the better text
    assert len(session["plt"].get_fignums()) == 4
    session["plt"].close("all")
