"""The generated pages are those that the code gives, and the pages' examples name what there is."""

import ast
import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from dgmark.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and source of a page's code blocks."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(source: str) -> Iterator[list[str]]:
    """The words of each `dgmark` command in a block, up to a pipe or a redirection."""
    for line in source.splitlines():
        for part in re.split(r"[|>]", line.split("#")[0]):
            if part.strip().startswith("dgmark "):
                yield shlex.split(part.replace("$SETTINGS", ""))[1:]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the others."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no such command: {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_the_generated_pages_are_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_in_a_page_have_the_options_that_they_are_given(page: Path) -> None:
    for language, source in blocks(page):
        if language in ("", "sh"):
            for words in commands(source):
                command, rest = command_of(words)
                known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
                given = {word.split("=")[0] for word in rest if word.startswith("--")}
                assert given <= known | {"--help"}, f"{page.name}: {words}: no option {given - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_in_a_page_imports_names_that_are_there(page: Path) -> None:
    for language, source in blocks(page):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dgmark":
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}"), ast.unparse(node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dgmark":
                assert hasattr(importlib.import_module("dgmark"), node.attr), f"{page.name}: dgmark.{node.attr}"
