"""What importing dgmark costs and offers, seen from a Python of its own."""

import importlib
import json
import pkgutil
import tomllib
import types
from pathlib import Path

import pytest

import dgmark
from support.fresh_process import run_fresh

HEAVY = {"torch", "transformers", "safetensors", "scipy", "sympy", "pyarrow", "matplotlib", "confusable_homoglyphs"}
LOADED = "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"

# the rooms of the contract that forbids torch, and two that keep to it where no command needs it
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
(TORCH_FREE,) = (one["source_modules"] for one in CONTRACTS if "torch" in one.get("forbidden_modules", ()))
LIGHT = (*TORCH_FREE, "dgmark_lab.baselines", "dgmark.cli")


def heavy_after(code: str) -> set[str]:
    """The heavy packages that are loaded once `code` has run."""
    loaded: list[str] = json.loads(run_fresh(code + LOADED).splitlines()[-1])
    assert "sys" in loaded
    return HEAVY & set(loaded)


def test_a_key_and_a_detection_need_no_heavy_package() -> None:
    code = "import dgmark; print(dgmark.Detector(dgmark.WatermarkKey.generate()).detect('some text').verdict)"
    assert heavy_after(code) == set()


def test_a_long_text_needs_no_heavy_package_either() -> None:
    code = "import dgmark; dgmark.detect(list(range(4, 6000)), dgmark.WatermarkKey.generate(modulus=3))"
    assert heavy_after(code) == set()


@pytest.mark.parametrize("room", LIGHT)
def test_no_module_of_a_light_room_needs_a_heavy_package(room: str) -> None:
    root = importlib.import_module(room)
    inside = pkgutil.walk_packages(getattr(root, "__path__", []), f"{root.__name__}.")
    modules = [root.__name__, *(module.name for module in inside if ".embed" not in module.name)]
    assert heavy_after("import " + ", ".join(modules)) == set()


def test_listing_the_names_needs_no_heavy_package() -> None:
    assert heavy_after("import dgmark; dir(dgmark); dgmark.__all__; dgmark.__version__") == set()


@pytest.mark.slow
def test_the_check_notices_torch() -> None:
    assert "torch" in heavy_after("import dgmark; dgmark.load_model")


def test_the_check_notices_scipy() -> None:
    assert "scipy" in heavy_after("import dgmark, scipy")


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


def test_the_public_names_are_sorted_and_named_once() -> None:
    assert dgmark.__all__ == sorted(set(dgmark.__all__))


@pytest.mark.parametrize("name", dgmark.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(dgmark, name) is not None


@pytest.mark.parametrize("name", [name for name in dgmark.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name: str) -> None:
    assert (getattr(dgmark, name).__doc__ or "").strip()


def test_dir_lists_the_public_names() -> None:
    assert dir(dgmark) == dgmark.__all__


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'dgmark' has no attribute 'no_such_name'"):
        dgmark.no_such_name  # noqa: B018


def test_a_name_that_needs_torch_is_the_one_of_its_module() -> None:
    decode: types.ModuleType = importlib.import_module("dgmark.decode")
    assert dgmark.generate is decode.generate


def test_the_public_names_hold_the_contract() -> None:
    assert set(dgmark.__all__) >= {
        "WatermarkKey",
        "load_model",
        "generate",
        "Detector",
        "Detection",
        "detect",
        "Generation",
    }
