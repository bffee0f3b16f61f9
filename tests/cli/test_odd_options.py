"""Odd values of every option and argument: an exit code that is documented, and never a traceback."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dgmark.cli import app
from support.cases import data
from support.command_line import run
from support.known_keys import known_key

# paths and names that no file, key or token can have
ODD = ["", "a\0b", "a\ud800b"]
# a right call of each command that loads no model and starts no server
CALLS = data(__file__, "calls")


def _calls(name: str, odd: str) -> Iterator[list[str]]:
    """The command with the odd value as each of its options, and in place of each of its arguments."""
    command: Any = typer.main.get_command(app)
    for part in name.split():
        command = command.commands[part]
    for option in command.get_params(typer.Context(command)):
        if option.param_type_name == "option" and not (option.is_flag or option.is_eager):
            yield [*CALLS[name], option.opts[0], odd]
    for place, given in enumerate(CALLS[name]):
        if not given.startswith("--"):
            yield [*CALLS[name][:place], odd, *CALLS[name][place + 1 :]]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: ascii(odd)[:10])
@pytest.mark.parametrize("name", CALLS)
def test_an_odd_value_is_refused_in_words(name: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known_key("odd").save("key.json")
    Path("in.txt").write_text("The king went.")
    for arguments in _calls(name, odd):
        done = run(*name.split(), *arguments)
        assert done.exit_code in (0, 2, 4, 5, 6), (arguments, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("rule", ["", " "])
def test_no_name_of_a_rule_is_refused_without_torch(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "dgmark_lab"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "the rule is not one of: bigram, position" in run("keygen", "--rule", rule, "key.json", code=2).stderr
