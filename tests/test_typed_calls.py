"""What a type checker says of calls of the library: settings that exist pass, others are errors before a run."""

from pathlib import Path

import pytest
from mypy import api

import dgmark

SOURCES = Path(dgmark.__file__).parents[1]
# the packages that the calls hand nothing of to their callers; to analyse them takes minutes
SKIPPED = (
    *("torch", "transformers", "numpy", "scipy", "tokenizers", "safetensors", "jaxtyping", "pydantic", "rich"),
    *("openai", "httpx2", "joserfc", "jinja2"),
)
CALLS = """
import dgmark

key = dgmark.WatermarkKey.load("key.json")
model = dgmark.load_model()
written = dgmark.generate(model, ["Once"], key=key, {length}=64)
dgmark.generate(model, ["Once"], key=key, errors="return", {length}=64)
dgmark.stream_generate(model, "Once", key=key, {length}=64)
dgmark.infill(model, ["Once [mask:4]"], key=key, {temperature}=0.5)
dgmark.Detector(key, {fpr}=1e-6)
dgmark.detect("Once", key, {fpr}=1e-6)
dgmark.DetectColumns("key.json", {fpr}=1e-6)
dgmark.GenerateColumns(model, "key.json", id_column="id", {length}=64)
"""
RIGHT = {"length": "length", "temperature": "temperature", "fpr": "fpr"}
WRONG = {"length": "lenght", "temperature": "temprature", "fpr": "frp"}


def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: str) -> list[str]:
    """The complaints of mypy, each with the number of its line."""
    program, config = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text(calls)
    skipped = ",".join(f"{name}.*" for name in SKIPPED)
    config.write_text(f"[mypy]\nstrict = true\nfollow_imports = silent\n[mypy-{skipped}]\nfollow_imports = skip\n")
    monkeypatch.setenv("MYPYPATH", str(SOURCES))
    found, problem, _ = api.run([f"--config-file={config}", f"--cache-dir={tmp_path / 'cache'}", str(program)])
    assert not problem
    return [line.partition("program.py:")[2] for line in found.splitlines() if "error:" in line]


@pytest.mark.slow
def test_a_misspelt_setting_is_an_error_of_mypy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints = check(tmp_path, monkeypatch, CALLS.format(**WRONG) + CALLS.format(**RIGHT))
    misspelt = [
        (number, name)
        for number, line in enumerate(CALLS.splitlines(), 1)
        for right, name in WRONG.items()
        if f"{{{right}}}" in line
    ]
    for number, name in misspelt:
        of_line = [complaint for complaint in complaints if complaint.startswith(f"{number}:")]
        assert any(name in complaint or "No overload variant" in complaint for complaint in of_line), (number, of_line)
    # and none of the calls that are right, which follow
    assert {complaint.partition(":")[0] for complaint in complaints} == {str(number) for number, _ in misspelt}
