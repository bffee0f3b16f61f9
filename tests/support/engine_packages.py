"""The packages of engines, from the package index: what the adapters are checked against.

`make engines-check` names a folder for them in DGMARK_ENGINES; without it, whatever needs them is skipped. Nothing of
them is installed.
"""

import ast
import os
import subprocess
import sys
import zipfile
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from packaging.utils import parse_wheel_filename

FOLDER = os.environ.get("DGMARK_ENGINES")


class Package:
    """One wheel: the text of its files, and what they define."""

    def __init__(self, wheel: Path) -> None:
        self._archive = zipfile.ZipFile(wheel)
        self.name = "-".join(wheel.name.split("-")[:2])  # with the version

    def source(self, path: str) -> str:
        """The text of a file; a version without it fails the test."""
        if path not in self._archive.namelist():
            pytest.fail(f"{self.name} has no file {path}")
        return self._archive.read(path).decode()

    def arguments(self, path: str, name: str) -> list[str]:
        """The names of the arguments of a function or method ("Class.method")."""
        body: list[Any] = ast.parse(self.source(path)).body
        for part in name.split("."):
            found = [node for node in body if getattr(node, "name", None) == part]
            if not found:
                pytest.fail(f"{self.name}: {path} has no {name}")
            body = getattr(found[-1], "body", [])
        arguments = found[-1].args
        return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    def check(self, path: str, *texts: str) -> None:
        """Whether a file says these things, whatever its line breaks and indentation."""
        source = "".join(self.source(path).split())
        for text in texts:
            assert "".join(text.split()) in source, f"{self.name}: {path} no longer says {text!r}"

    def run(self, path: str, name: str, stubs: dict[str, Any], folder: Path) -> ModuleType:
        """Execute one file as a module, with stubs for what it imports."""
        file = folder / f"{name.replace('.', '_')}.py"
        file.write_text(self.source(path))
        spec = spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        with patch.dict(sys.modules, {**{key: SimpleNamespace(**value) for key, value in stubs.items()}, name: module}):
            spec.loader.exec_module(module)
        return module


@cache
def package(name: str) -> Package:
    """The newest wheel of a package, without its dependencies; the test is skipped without one.

    The package index is asked once in each run, and a wheel that is there already is not fetched again. Without a
    network, the newest wheel of earlier runs serves.
    """
    if not FOLDER:
        pytest.skip("`make engines-check` compares with the engine's own package")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", FOLDER, name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(Path(FOLDER).glob(f"{name}-*.whl"), key=lambda wheel: parse_wheel_filename(wheel.name)[1])
    if done.returncode:
        problem = f"the package index gives no wheel of {name}: {(done.stderr.strip().splitlines() or [''])[-1]}"
        if not wheels:
            pytest.skip(problem)
        print(f"{problem}; checked against {wheels[-1].name}, of an earlier run")
    return Package(wheels[-1])
