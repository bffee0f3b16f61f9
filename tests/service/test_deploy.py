"""The container recipe, the systemd unit and the proxy: linted, and they fit what `dgmark serve` has."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dgmark.cli import app
from dgmark.errors import DgmarkError
from dgmark.service.settings import ServiceSettings

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "Containerfile"
UNIT = ROOT / "deploy" / "dgmark.service"


def options_of_serve(words: list[str]) -> dict[str, object]:
    """What `dgmark serve` understands these words as, without starting it."""
    assert words[0] == "serve"
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return dict(serve.make_context("serve", words[1:]).params)


def instructions(name: str) -> list[str]:
    lines = RECIPE.read_text().replace("\\\n", " ").splitlines()
    return [line.removeprefix(name).strip() for line in lines if line.startswith(f"{name} ")]


def setting(name: str) -> str:
    (value,) = (line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith(f"{name}="))
    return value


def test_the_recipe_has_no_fault_that_hadolint_knows() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint here")
    done = subprocess.run([hadolint, "--failure-threshold", "style", str(RECIPE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_recipe_copies_and_starts_what_there_is() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]}
    assert copied == kept
    assert all((ROOT / path).exists() for path in copied)
    assert instructions("USER")[-1] == "10001"
    (entry,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    program, *words = json.loads(entry) + json.loads(command)
    options = options_of_serve(words)
    assert program == "dgmark"
    assert (options["host"], f"{options['port']}") == ("0.0.0.0", instructions("EXPOSE")[0])
    assert options["tokens"] is not None  # it can be reached from outside the container


def test_the_unit_starts_what_serve_understands() -> None:
    program, *words, more = shlex.split(setting("ExecStart"))
    options = options_of_serve(words)
    assert more == "$DGMARK_OPTIONS"
    assert program == "/opt/dgmark/bin/dgmark"
    assert options["tokens"] is not None
    assert Path(str(options["audit"])).parent.name == setting("LogsDirectory")
    assert setting("KillMode") == "mixed"
    assert setting("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_proxy_has_the_limits_of_the_service_and_one_for_headers() -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    given = {words[0]: words[1:] for words in map(str.split, re.findall(r"^ *(.*);", text, re.MULTILINE))}
    assert given["proxy_pass"] == [f"http://127.0.0.1:{options_of_serve(['serve'])['port']}"]
    assert given["client_max_body_size"] == [f"{ServiceSettings.body_bytes // 2**20}m"]
    assert int(given["proxy_read_timeout"][0].rstrip("s")) > ServiceSettings.text_seconds
    assert {"client_header_timeout", "client_body_timeout", "limit_conn", "limit_conn_zone"} <= set(given)


def test_wrong_settings_do_not_start_the_unit_again() -> None:
    kinds: list[type[DgmarkError]] = [DgmarkError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind.exit_code for kind in kinds if kind.__module__ == "dgmark.errors"} - {DgmarkError.exit_code}
    assert {int(code) for code in setting("RestartPreventExitStatus").split()} == ours


def test_systemd_accepts_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/dgmark/bin/dgmark", "/bin/true"))  # which has to be there
    verified = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")
    # 20 of 100: 0 would be a unit that may do nothing
    command = [analyze, "security", "--no-pager", "--offline=true", "--threshold=20", str(unit)]
    assessed = subprocess.run(command, capture_output=True, text=True)
    assert assessed.returncode == 0, assessed.stdout[-500:]
