"""The house as a whole: its rooms, what the core carries, and whether what it tells users to install exists."""

import re
import tomllib
from pathlib import Path

import grimp
import pytest

import dgmark
from dgmark.checkpoint.folder import BUILTINS, builtin_folder, find_checkpoint
from dgmark.errors import MissingExtra
from support.fresh_process import run_fresh

SOURCES = Path(dgmark.__file__).parent
ROOT = Path(__file__).parents[1]
MOST_ROOMS = 25
LARGEST_CORE = 2_000_000  # bytes before compression; weights are a distribution of their own


def test_the_house_has_few_rooms() -> None:
    """Rooms are packages, and modules that stand at the root."""
    graph = grimp.build_graph("dgmark")
    packages = {module for module in graph.modules if graph.find_children(module)}
    at_the_root = graph.find_children("dgmark") - packages
    assert {"dgmark.detection", "dgmark.decode"} <= packages
    assert len(packages | at_the_root) <= MOST_ROOMS


def test_the_core_carries_no_weights() -> None:
    files = [path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(files) > 100
    assert not [path for path in files if path.suffix in {".safetensors", ".bin", ".gguf"}]
    assert sum(path.stat().st_size for path in files) < LARGEST_CORE


def test_what_a_hint_says_to_install_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name for path in SOURCES.rglob("*.py") for name in re.findall(r"install_hint\('(\w+)'\)", path.read_text())
    }
    assert len(named) >= 5
    assert named <= set(extras)
    assert (ROOT / "builtin" / "pyproject.toml").is_file()


def test_no_package_has_the_name_of_a_public_function() -> None:
    packages = {path.parent.name for path in SOURCES.rglob("__init__.py")}
    functions = {name for name in dgmark.__all__ if callable(getattr(dgmark, name))}
    assert "detect" in functions
    assert not packages & functions


@pytest.mark.parametrize("name", BUILTINS)
def test_without_the_built_in_models_it_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgmark.checkpoint.folder.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=rf"the built-in {name} .* run `pip install ./builtin`"):
        find_checkpoint(name)


def test_a_model_of_ones_own_needs_no_built_in_one(tmp_path: Path) -> None:
    """A key and a detection with a tokenizer of one's own, where the built-in models are not installed."""
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((builtin_folder("storyteller") / file).read_bytes())
    code = (
        "import sys; sys.modules['dgmark_builtin'] = None\n"
        "import dgmark\n"
        f"key = dgmark.WatermarkKey.generate({str(tmp_path)!r})\n"
        "print(dgmark.Detector(key).detect('A text of some words, and no more than that.').num_tokens_scored > 5)\n"
    )
    assert run_fresh(code).strip() == "True"
