"""Which package `make engines-check` compares with."""

import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import engine_packages


def wheel(folder: Path, version: str) -> None:
    with zipfile.ZipFile(folder / f"engine-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("engine/version.py", version)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], str]:
    """The version that is taken when the package index offers one (None: it cannot be reached)."""
    monkeypatch.setattr(engine_packages, "FOLDER", str(tmp_path))

    def taken(offered: str | None) -> str:
        def download(*_: Any, **__: Any) -> Any:
            if offered is not None:
                wheel(tmp_path, offered)
            return SimpleNamespace(returncode=int(offered is None), stderr="no route to host")

        monkeypatch.setattr(subprocess, "run", download)
        return engine_packages.package.__wrapped__("engine").source("engine/version.py")

    return taken


def test_a_newer_version_is_fetched_though_an_older_one_is_there(index: Callable[[str | None], str]) -> None:
    assert index("0.5.9") == "0.5.9"
    assert index("0.5.23") == "0.5.23"
    assert index("0.6.0rc1") == "0.6.0rc1"


def test_without_a_network_the_newest_of_earlier_runs_serves(index: Callable[[str | None], str]) -> None:
    with pytest.raises(pytest.skip.Exception, match="no route to host"):
        index(None)
    index("0.5.23")
    index("0.5.9")
    assert index(None) == "0.5.23"
