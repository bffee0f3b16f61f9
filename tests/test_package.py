"""The package as a whole, seen from a Python of its own: what importing it costs and offers, what it carries."""

import importlib
import json
import pkgutil
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

import dgmark
from dgmark.checkpoint.folder import BUILTINS, builtin_folder, find_checkpoint
from dgmark.errors import MissingExtra
from support.fresh_process import run_fresh

SOURCES = Path(dgmark.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
LARGEST_CORE = 2_000_000  # bytes before compression; weights are a distribution of their own
HEAVY = {"torch", "transformers", "safetensors", "scipy", "sympy", "pyarrow", "matplotlib", "confusable_homoglyphs"}
LOADED = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
# the packages of the contract that forbids torch, and the command line, which keeps to it where no command needs it
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
(TORCH_FREE,) = (one["source_modules"] for one in CONTRACTS if "torch" in one.get("forbidden_modules", ()))


# --- what is loaded


def heavy_after(code: str) -> set[str]:
    """The heavy packages that are loaded once `code` has run."""
    loaded: list[str] = json.loads(run_fresh(code + LOADED).splitlines()[-1])
    assert "sys" in loaded
    return HEAVY & set(loaded)


@pytest.mark.parametrize(
    "code",
    [
        "dir(dgmark); dgmark.__all__; dgmark.__version__",
        "print(dgmark.Detector(dgmark.WatermarkKey.generate()).detect('some text').verdict)",
        "dgmark.detect(list(range(4, 6000)), dgmark.WatermarkKey.generate(modulus=3))",
    ],
    ids=["names", "short text", "long text"],
)
def test_keys_and_detection_need_no_heavy_package(code: str) -> None:
    assert heavy_after(f"import dgmark; {code}") == set()
    assert heavy_after("import scipy") == {"scipy"}


@pytest.mark.parametrize("package", [*TORCH_FREE, "dgmark.cli"])
def test_no_module_of_a_light_package_needs_a_heavy_one(package: str) -> None:
    root = importlib.import_module(package)
    inside = pkgutil.walk_packages(getattr(root, "__path__", []), f"{root.__name__}.")
    assert heavy_after("import " + ", ".join([root.__name__, *(module.name for module in inside)])) == set()


def test_an_interruption_while_modules_load_is_no_traceback() -> None:
    code = """
    import importlib.abc, sys
    class Interrupt(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "numpy":
                raise KeyboardInterrupt
    sys.meta_path.insert(0, Interrupt())
    from dgmark.__main__ import main
    try:
        main()
    except SystemExit as stop:
        print(stop.code)
    """
    assert run_fresh(textwrap.dedent(code)).split() == ["130"]


# --- what there is


@pytest.mark.parametrize("name", dgmark.__all__)
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    assert (getattr(dgmark, name).__doc__ or "").strip()


def test_the_public_names_are_listed_once() -> None:
    assert dir(dgmark) == dgmark.__all__ == sorted(set(dgmark.__all__))
    with pytest.raises(AttributeError, match="module 'dgmark' has no attribute 'no_such_name'"):
        getattr(dgmark, "no_such_name")  # noqa: B009


def test_the_core_carries_no_weights() -> None:
    files = [path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(files) > 100
    assert not [path for path in files if path.suffix in {".safetensors", ".bin", ".gguf"}]
    assert sum(path.stat().st_size for path in files) < LARGEST_CORE


# --- what is not installed


def test_what_needs_torch_says_how_to_install_it() -> None:
    code = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import dgmark
try:
    dgmark.generate
except ImportError as error:
    print(error)
"""
    assert run_fresh(code).strip() == (
        "dgmark.generate needs torch and transformers: run `pip install '.[generate]'` in a checkout of dgmark"
    )


def test_what_a_hint_says_to_install_exists() -> None:
    named = {
        name
        for path in SOURCES.rglob("*.py")
        for name in re.findall(r"(?:install_hint|needed_extra)\(['\"](\w+)['\"]", path.read_text())
    }
    assert len(named) >= 4
    assert named <= set(PROJECT["project"]["optional-dependencies"])
    beside = {
        name
        for path in SOURCES.rglob("*.py")
        for name in re.findall(r"distribution_hint\(['\"](\w+)['\"]", path.read_text())
    }
    assert beside == {"documents"}  # the service's are named by the table of commands
    assert all((REPOSITORY / name / "pyproject.toml").exists() for name in (*beside, "service"))


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


# --- what the distributions say of themselves

REPOSITORY = Path(__file__).parents[1]
DISTRIBUTIONS = {
    "dgmark": ".",
    "dgmark-builtin": "builtin",
    "dgmark-documents": "documents",
    "dgmark-service": "service",
    "dgmark-lab": "lab",
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distributions_say_the_same_of_who_made_them_and_what_they_need(name: str) -> None:
    folder, first = REPOSITORY / DISTRIBUTIONS[name], PROJECT["project"]
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    shared = ("authors", "license", "requires-python")
    assert (project["name"], *(project[field] for field in shared)) == (name, *(first[field] for field in shared))
    assert project.get("version", dgmark.__version__) == dgmark.__version__
    classifiers = project["classifiers"]
    assert classifiers[0] == first["classifiers"][0]
    assert len(classifiers) == len(set(classifiers)) >= 5
    typed = (folder / "src" / name.replace("-", "_") / "py.typed").exists()
    assert ("Typing :: Typed" in classifiers) == typed


def test_what_make_demo_installs_is_enough_to_serve_the_demo() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    (installed,) = re.findall(r"^\.venv/\.generate:.*\n\t\$\(INSTALL\) (.*)$", makefile, re.MULTILINE)
    assert {"'.[generate]'", "./service"} <= set(installed.split())  # a test of `dgmark serve --demo` runs with these
