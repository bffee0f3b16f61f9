"""Options: those that are made of `DecodeConfig`, the help of every command, completion."""

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import dgmark
from dgmark.cli import app
from dgmark.cli.ray_command import app as ray_app
from dgmark.decode.config import setting_fields
from dgmark.models.load import load_model
from support.cases import cases
from support.command_line import rows, run
from support.known_keys import known_key


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for own, one in getattr(command, "commands", {}).items():
        yield from commands(one, f"{name} {own}".strip())


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_fits_on_a_screen(name: str) -> None:
    short, long = (CliRunner().invoke(app, [*name.split(), flag], terminal_width=98) for flag in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    lines = long.stdout.splitlines()
    assert lines[0].startswith("Usage: ")
    assert max(map(len, lines)) <= 100
    sections = re.findall(r"^(\w.*):\n((?:  .*\n)+)", long.stdout, flags=re.MULTILINE)
    common = [line for line in dict(sections).get("Options", "").splitlines() if line.startswith("  -")]
    if len(sections) > 2:  # panels: the common options come first, and are few
        assert next(title for title, _ in sections if title != "Arguments") == "Options"
        assert len(common) <= 7
    else:
        assert len(lines) <= 40


def test_panels_hold_options_that_are_there() -> None:
    named = {name: getattr(command.callback, "panel_of", {}) for name, command in COMMANDS.items()}
    assert {name for name, panels in named.items() if panels} == {"generate", "infill", "detect", "serve"}
    of_generate = {one.name for one in COMMANDS["generate"].params}  # whose lists others use
    for name, panels in named.items():
        assert panels.keys() <= {one.name for one in COMMANDS[name].params} | of_generate


# of pip, hf, SGLang and llama.cpp, and what click gives every command
OF_OTHERS = {"--dest", "--no-deps", "--only-binary", "--quiet", "--include", "--dllm-algorithm", "--merge", "--context"}
OF_OTHERS |= {"--help"}


def test_every_option_that_a_message_names_is_there() -> None:
    there = OF_OTHERS | {
        option
        for one in (app, ray_app)
        for _, command in commands(typer.main.get_command(one))
        for parameter in command.get_params(typer.Context(command))
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    named: set[tuple[str, str]] = set()
    for path in Path(dgmark.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= {(path.name, option) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value)}
    assert len({option for _, option in named}) > 40
    assert not {one for one in named if one[1] not in there}


@pytest.mark.parametrize(("line", "hint"), cases(__file__, "guesses"))
def test_a_wrong_guess_gets_a_hint(line: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known_key("hints").save("KEY")
    refused = run(*shlex.split(line))
    assert (refused.exit_code in (2, 4), hint in " ".join(refused.stderr.split())) == (True, True), refused.stderr


def test_an_argument_is_a_file_that_exists_and_else_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--no-watermark", "--length", 8, "--block-length", 8, "--json"]
    Path("two.txt").write_text("The sea\nThe sky\n")
    written = rows(run("generate", "two.txt", *short).stdout)
    assert [row["prompt"] for row in written] == ["The sea", "The sky"]
    assert rows(run("generate", "The sea", *short).stdout)[0]["text"] == written[0]["text"]
    Path("hole.txt").write_text("The sea [mask:4] was calm.")
    filled = [run("infill", one, "--no-watermark").stdout for one in ("hole.txt", "The sea [mask:4] was calm.")]
    assert filled[0] == filled[1] != ""


@pytest.mark.parametrize(("name", "decided"), [("generate", set()), ("infill", {"length", "steps", "schedule"})])
def test_what_decodes_takes_every_setting(name: str, decided: set[str]) -> None:
    settings = {one.name for one in setting_fields()}
    loading = set(inspect.signature(load_model).parameters) - {"name_or_path"}
    assert (settings | loading) - {one.name for one in COMMANDS[name].params} == decided


@pytest.mark.parametrize("name", [one.name for one in setting_fields() if one.choices])
def test_an_unknown_choice_is_refused_before_a_model_is_loaded(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    result = run("generate", "--no-watermark", "--prompt", "x", "--model", "no-such-model", flag, "nonsense", code=2)
    assert f"Invalid value for '{flag}'" in result.stderr
    assert "'nonsense' is not one of" in result.stderr


def test_the_version_is_printed() -> None:
    import dgmark

    printed = run("--version")
    assert (printed.exit_code, printed.stdout) == (0, f"dgmark {dgmark.__version__}\n")
