"""Rules that other packages add: what is shared, and what becomes of a package that does not work."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dgmark import WatermarkKey
from dgmark.errors import KeyFileError, MissingExtra
from dgmark.watermark import rules
from support.command_line import run
from support.fresh_process import run_fresh
from support.installed import install as install_package
from support.known_keys import known_key

RULE = """
from typing import Any, ClassVar, Literal
from pydantic import Field
from pydantic.dataclasses import dataclass
from dgmark.watermark.rules import Rule
from dgmark.watermark.spec import WatermarkSpec

@dataclass(frozen=True, kw_only=True)
class {name}Spec(WatermarkSpec):
    rule: Literal["{name}"] = "{name}"
    prf: ClassVar[str] = "none-v1"
    {option}

{name} = Rule({name}Spec, decoding="odd_side:Side", detection="odd_side:Test", title="{title}")
"""
Install = Callable[..., None]


def code(name: str, option: str, title: str = "") -> str:
    return RULE.format(name=name, option=option, title=title)


def forget() -> None:
    rules._added.cache_clear()
    rules._loaded.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Adds a package with a module `odd_rules`, as pip would install it."""

    def add(code: str, **points: str) -> None:
        (tmp_path / "odd_rules.py").write_text(code)
        lines = (f"{name} = {point}\n" for name, point in points.items())
        install_package(tmp_path, "odd-package", rules.GROUP, "".join(lines))
        monkeypatch.syspath_prepend(tmp_path)
        forget()

    yield add
    forget()
    sys.modules.pop("odd_rules", None)


RESERVED = ("name", "model", "version", "secret", "package", "file", "prf", "check", "chance", "schema")
BROKEN = {
    "no such module": ("", "no_such_module:odd", "ModuleNotFoundError: No module named 'no_such_module'"),
    "no such object": ("", "odd_rules:odd", "AttributeError"),
    "a module that fails": ("1 / 0", "odd_rules:odd", "ZeroDivisionError: division by zero"),
    "no rule": ("odd = 3", "odd_rules:odd", "names an object of int, not of dgmark.watermark.rules.Rule"),
    "another name": (code("other", "width: int = 3"), "odd_rules:other", "names the rule other"),
    **{
        f"an option {name}": (code("odd", f"{name}: str = 'x'"), "odd_rules:odd", f"{name} is not a name for an option")
        for name in RESERVED
    },
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_package_that_does_not_work_breaks_no_other_rule(kind: str, install: Install, tmp_path: Path) -> None:
    module, point, reason = BROKEN[kind]
    install(module, odd=point)
    sane, odd = tmp_path / "sane.json", tmp_path / "odd.json"
    known_key("sane").save(sane)
    fields = json.loads(sane.read_text())
    odd.write_text(json.dumps({**fields, "rule": "odd", "package": "odd-package"}))
    odd.chmod(0o600)
    for command in (["--help"], ["detect", "--help"], ["detect", "--key", sane]):
        assert run(*command, stdin="The king went.").exit_code == 0
    shown = run("keygen", "--help")
    assert (shown.exit_code, "odd" in shown.stdout) == (0, False)
    assert run("keygen", tmp_path / "new.json", "--rule", "position").exit_code == 0
    said = "rule odd of the package odd-package cannot be used ("
    refused = run("keygen", tmp_path / "other.json", "--rule", "odd")
    assert (refused.exit_code, f"error: {said}" in refused.stderr, reason in refused.stderr) == (6, True, True)
    assert not (tmp_path / "other.json").exists()
    assert said in run("detect", "--key", odd, stdin="The king went.", code=5).stderr
    with pytest.raises(KeyFileError, match=r"odd\.json cannot be used here: rule odd of the package odd-package"):
        WatermarkKey.load(odd)


def test_a_rule_whose_sides_are_missing_names_its_package(install: Install) -> None:
    install(code("odd", "width: int = 3"), odd="odd_rules:odd")
    rule = rules.find_rule("odd")
    assert rule.distribution == "odd-package"  # from the entry point, as the rule does not say it
    for part in (rule.decode_side, rule.test):
        with pytest.raises(MissingExtra, match=r"rule odd of the package odd-package cannot be used \(ModuleNotFound"):
            part()


def test_keygen_takes_and_shows_the_options_of_the_rule_that_is_named(install: Install, tmp_path: Path) -> None:
    module = (
        code("first", 'width: int = Field(default=3, json_schema_extra={"help": "Width in tokens."})', "First's")
        + code("second", 'width: str = Field(default="wide", json_schema_extra={"help": "Width in words."})')
        + code("third", "thin: int = 1")
    )
    install(module, first="odd_rules:first", second="odd_rules:second", third="odd_rules:third")
    for rule, width, title, shown in (
        ("first", 5, "Rule first (First's):", "--width NUMBER Width in tokens. [default: 3]"),
        ("second", "5", "Rule second:", "--width TEXT Width in words. [default: wide]"),
    ):
        told = " ".join(run("keygen", "--rule", rule, "--help").stdout.split())
        assert f"{title} {shown}" in told
        assert "--nearest" not in told
        file = tmp_path / f"{rule}.json"
        assert run("keygen", file, f"--rule={rule}", "--width", 5).exit_code == 0
        assert json.loads(file.read_text())["width"] == width
    for options, problem in (
        (["--rule", "first", "--width", "x"], "Invalid value for '--width': it must be a valid integer"),
        (["--rule", "third", "--width", "5"], "rule third has no width"),
        (["--width", "5"], "--rule is needed with width, which is an option of: first, second"),
        (["--thin", "5"], "--rule is needed with thin, which is an option of: third"),
        (["--rule", "no", "--thin", "5"], "the rule is not one of: bigram, position"),
    ):
        assert problem in run("keygen", tmp_path / "no.json", *options, code=2).stderr


def test_only_the_rule_that_is_named_is_imported(tmp_path: Path) -> None:
    known_key("lazy").save(tmp_path / "key.json")
    commands = [["--help"], ["key", "show", str(tmp_path / "key.json")], ["keygen", "--help"]]
    commands += [["keygen", "--rule", "kgw", "--help"]]
    told = run_fresh(
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from dgmark.cli import app\n"
        f"for command in {commands!r}:\n"
        "    result = CliRunner().invoke(app, command)\n"
        "    print(result.exit_code, any(name.partition('.')[0] == 'dgmark_lab' for name in sys.modules))\n"
    ).splitlines()
    assert told == ["0 False", "0 False", "0 False", "0 True"]
