"""Each line of `pip install` that pages give, run in a fresh environment by an old pip and by the newest one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.install_lines import ROOT, install_lines

OWN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
NOT_MADE = ("bench", "dev", "docs", "gguf", "mlx", "ray")  # large or compiled: pip only chooses their versions


@pytest.mark.parametrize("pip", ["pip==23.2.1", "pip"])
@pytest.mark.parametrize("line", sorted({line for _, line in install_lines()}))
def test_a_line_installs_what_passes_the_smoke_test(line: str, pip: str, tmp_path: Path) -> None:
    """The environment has what its packages need, and what dgmark can do there works."""
    python = str(tmp_path / "environment" / "bin" / "python")

    def run(*command: str) -> None:
        subprocess.run(command, cwd=ROOT, env=OWN, check=True)

    run(sys.executable, "-m", "venv", str(tmp_path / "environment"))
    run(python, "-m", "pip", "install", "--quiet", "--upgrade", pip)
    install, words = (python, "-m", "pip", "install", "--quiet"), line.split()
    if any(extra in line for extra in NOT_MADE):
        run(*install, "--dry-run", *words)
    else:
        run(*install, *words)
        run(python, "-m", "pip", "check")
        if any(word[:2] in (".", ".[") for word in words):  # others add to an environment that has dgmark
            run("deploy/smoke.sh", python)
    shutil.rmtree(tmp_path / "environment")


def test_what_is_installed_here_passes_the_whole_smoke_test() -> None:
    """The environment of the tests has all packages, so that no step is skipped."""
    done = subprocess.run([ROOT / "deploy" / "smoke.sh", sys.executable], capture_output=True, text=True)
    assert (done.returncode, "skipped" in done.stdout) == (0, False), done.stdout
