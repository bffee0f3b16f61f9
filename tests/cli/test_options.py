"""Options: those that are made of `DecodeConfig`, the help of every command, completion."""

import ast
import inspect
import re
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
from support.command_line import run


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
    assert len(lines) <= 40 or name in ("generate", "keygen")  # the options of all settings, and of all rules


# of pip, hf, SGLang and llama.cpp, and what click gives every command
OF_OTHERS = {"--dest", "--no-deps", "--only-binary", "--quiet", "--include", "--dllm-algorithm", "--merge", "--context"}
OF_OTHERS |= {"--help"}


def test_every_option_that_a_message_names_is_there() -> None:
    there = OF_OTHERS | {
        option
        for one in (app, ray_app)
        for _, command in commands(typer.main.get_command(one))
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    named: set[tuple[str, str]] = set()
    for path in Path(dgmark.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= {(path.name, option) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value)}
    assert len({option for _, option in named}) > 40
    assert not {one for one in named if one[1] not in there}


@pytest.mark.parametrize(("name", "decided"), [("generate", set()), ("infill", {"length", "steps", "schedule"})])
def test_what_decodes_takes_every_setting(name: str, decided: set[str]) -> None:
    settings = {one.name for one in setting_fields()}
    loading = set(inspect.signature(load_model).parameters) - {"name_or_path"}
    assert (settings | loading) - {one.name for one in COMMANDS[name].params} == decided


@pytest.mark.parametrize("name", [one.name for one in setting_fields() if one.choices])
def test_an_unknown_choice_is_refused_before_a_model_is_loaded(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    result = run("generate", "--no-watermark", "--prompt", "x", "--model", "no-such-model", flag, "nonsense")
    assert result.exit_code == 2
    assert f"Invalid value for '{flag}'" in result.stderr
    assert "'nonsense' is not one of" in result.stderr


def test_the_version_is_printed() -> None:
    import dgmark

    printed = run("--version")
    assert (printed.exit_code, printed.stdout) == (0, f"dgmark {dgmark.__version__}\n")
