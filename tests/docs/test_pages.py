"""The pages agree with the repository: links, the commands and the Python of examples, the table of dependencies."""

import ast
import importlib
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from dgmark.cli import app
from dgmark.cli.ray_command import app as ray_app
from dgmark.watermark import rules
from dgmark.watermark.spec import options_of
from dgmark_lab.experiments.made_with import made_with

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for part in ("docs", "builtin", "lab") for page in (ROOT / part).rglob("*.md"))]
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)

of_every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


# --- links


def targets(page: Path) -> list[str]:
    """What the page's relative links point to; code is not a link."""
    found = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub and the site give a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


@of_every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in targets(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_relative_to(ROOT), f"{target}: outside the repository"
        assert there.exists(), f"{target}: no such file"
        if anchor and there.suffix == ".md" and there.name != "api.md":  # whose docstrings `make docs` adds and checks
            assert anchor in anchors(there), f"{target}: no such heading; there are {sorted(anchors(there))}"


# --- pages that are made from the code


@pytest.mark.parametrize("page", ["commands.md", "decoding-options.md", "api.md"])
def test_a_reference_page_says_what_the_code_says(page: str) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "reference_pages.py"))
    assert set(script["PAGES"]) == {one.name for one in (ROOT / "docs" / "reference").glob("*.md")}
    committed = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert committed.count(script["MADE"]) == 1
    assert committed == script["made"](page), "run `python docs/reference_pages.py`"


# --- figures


MEASURED = {"evaluation.md", "scale.md", "security.md"}  # pages with figures beside the results


@of_every_page
def test_figures_are_of_today_s_code(page: Path) -> None:
    """A line in each such page names what its figures depend on, with hashes of what that does."""
    text = page.read_text(encoding="utf-8")
    stated = re.findall(r"^Made with dgmark: .+$", text, flags=re.MULTILINE)
    again = "\n".join(["Make the figures again:", *re.findall(r"`((?:python lab|dgmark-lab|make bench)[^`]+)`", text)])
    if "results" in page.parts or page.name in MEASURED:
        assert stated, f"The page does not state the line that reports and benchmarks print.\n{again}"
    for line in stated:
        assert line == made_with(*re.findall(r"([a-z-]+) [0-9a-f]{8}", line)), again


# --- examples


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and source of a page's code blocks."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(source: str) -> Iterator[list[str]]:
    """The words of each `dgmark` or `dgmark-ray` command in a block, up to a pipe or a redirection."""
    for line in source.replace("\\\n", " ").splitlines():
        for part in re.split(r"[|>]", line.split("#")[0]):
            if part.strip().startswith(("dgmark ", "dgmark-ray ")):
                yield shlex.split(part.replace("$SETTINGS", ""))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the others."""
    program, *words = words
    command: Any = typer.main.get_command(ray_app if program == "dgmark-ray" else app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no such command: {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


OF_RULES = {
    "--" + name.replace("_", "-") for rule in rules.rule_names() for name in options_of(rules.find_rule(rule).spec)
}


@of_every_page
def test_the_commands_of_examples_have_the_options_that_they_are_given(page: Path) -> None:
    for language, source in blocks(page):
        if language in ("", "sh"):
            for words in commands(source):
                command, rest = command_of(words)
                known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
                known |= OF_RULES if command.name == "keygen" else set()
                given = {word.split("=")[0] for word in rest if word.startswith("--")}
                assert given <= known | {"--help"}, f"{words}: no option {given - known}"


@of_every_page
def test_the_python_of_examples_imports_names_that_are_there(page: Path) -> None:
    for language, source in blocks(page):
        if language != "python":
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dgmark":
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}"), ast.unparse(node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "dgmark":
                assert hasattr(importlib.import_module("dgmark"), node.attr), f"dgmark.{node.attr}"


@of_every_page
def test_benchmarks_have_the_options_that_they_are_given(page: Path) -> None:
    for name, rest in re.findall(r"`python lab/benchmarks/(\w+\.py)([^`]*)`", page.read_text(encoding="utf-8")):
        source = (ROOT / "lab" / "benchmarks" / name).read_text(encoding="utf-8")
        assert set(re.findall(r"(?<=\s)--[\w-]+", rest)) <= set(re.findall(r'"(--[\w-]+)"', source)), f"{name}{rest}"


# --- dependencies


def declared() -> dict[str, set[str]]:
    """Each package of every pyproject.toml, and what installs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    beside = {
        name: tomllib.loads((ROOT / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name in ("documents", "service", "lab")
    }
    lab = beside["lab"]
    groups = {
        "always": project["project"]["dependencies"],
        "build": project["build-system"]["requires"],
        "./documents": beside["documents"]["dependencies"],
        "./service": beside["service"]["dependencies"],
        "lab": lab["dependencies"] + lab["optional-dependencies"]["bench"],
        **project["project"]["optional-dependencies"],
    }
    found: dict[str, set[str]] = {}
    for group, requirements in groups.items():
        for requirement in requirements:
            name = re.split(r"[\[<>=!~; ]", requirement)[0]
            if not name.startswith("dgmark"):
                found.setdefault(name, set()).add(group)
    return found


def test_the_table_names_each_dependency_and_what_installs_it() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| ([^|]+) \|$", page, flags=re.MULTILINE)
    assert {name: set(installed.replace("`", "").split(", ")) for name, installed, _ in rows} == declared()
    assert len(rows) == len(declared())
