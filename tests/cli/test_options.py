"""Options: every flag of every command, those that are made of `DecodeConfig`, and how the help shows them."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer

from dgmark.cli import app
from dgmark.cli import options as opt
from dgmark.cli.option_groups import OptionGroup, option, option_groups, options_of, set_options
from dgmark.decode.config import setting_fields
from dgmark.errors import SettingsError
from dgmark.models.load import load_model
from dgmark_lab.cli import app as lab_app
from support.command_line import run

PANELS = {"Options", "Key", "Model", "Decoding", "Detection", "Speed", "Output"}


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    inside = getattr(command, "commands", None)
    if not inside:
        yield name, command
        return
    for own, one in inside.items():
        yield from commands(one, f"{name} {own}".strip())


COMMANDS = dict(commands(typer.main.get_command(app))) | dict(commands(typer.main.get_command(lab_app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_options_stand_in_known_panels(name: str) -> None:
    assert {one.rich_help_panel or "Options" for one in COMMANDS[name].params} <= PANELS


@pytest.mark.parametrize(
    ("name", "decided"),
    [("generate", set()), ("bench-lm", set()), ("infill", {"length", "steps", "schedule"})],  # its holes decide
)
def test_what_decodes_takes_every_setting(name: str, decided: set[str]) -> None:
    settings = {one.name for one in setting_fields()}
    taken = {one.name for one in COMMANDS[name].params}
    loading = set(inspect.signature(load_model).parameters) - {"name_or_path"}
    assert (settings | loading) - taken == decided


def test_every_setting_has_a_sentence_of_help_and_its_default_in_words() -> None:
    for one in setting_fields():
        assert one.help.endswith(".")
        assert one.default is None or one.default_text
        assert not one.choices or one.default in one.choices


def test_an_option_that_is_not_set_leaves_the_default_alone() -> None:
    assert set_options({"guard": 0.0, "cache": None}) == {"guard": 0.0}


@pytest.mark.parametrize("name", [one.name for one in setting_fields() if one.choices])
def test_a_value_that_is_not_one_of_the_choices_is_refused_before_a_model_is_loaded(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    result = run("generate", "--no-watermark", "--prompt", "x", "--model", "no-such-model", flag, "nonsense")
    choices = next(one.choices for one in setting_fields() if one.name == name)
    assert result.exit_code == 2
    assert f"{flag} 'nonsense' is not one of: {', '.join(choices)}" in result.stderr


# --- groups


@dataclass(frozen=True)
class Pair:
    first: Annotated[int, typer.Option(help="One.")] = 1
    second: Annotated[str | None, typer.Option(help="Two.")] = None


def test_a_command_gets_the_value_of_a_group_and_shows_its_options() -> None:
    seen: list[object] = []

    @option_groups
    def command(
        name: str,
        pair: Annotated[Pair, options_of(Pair)],
        total: Annotated[int, OptionGroup([option("more", int, "More.", default=3)], lambda told: told["more"] + 1)],
        last: int = 9,
    ) -> None:
        seen.extend([name, pair, total, last])

    assert list(inspect.signature(command).parameters) == ["name", "first", "second", "more", "last"]
    small = typer.Typer()
    small.command()(command)
    from typer.testing import CliRunner

    assert CliRunner().invoke(small, ["n", "--second", "b", "--more", "5"]).exit_code == 0
    assert seen == ["n", Pair(1, "b"), 6, 9]


def test_either_a_key_or_no_watermark_is_required() -> None:
    with pytest.raises(SettingsError, match="one of the two"):
        opt.key_to_mark_with(None, False, False)
    assert opt.key_to_mark_with(None, True, False) is None


# --- help, version, completion


@pytest.mark.parametrize("name", ["", *COMMANDS])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help_under_both_flags(name: str, flag: str) -> None:
    shown = run(*name.split(), flag)
    assert shown.exit_code == 0
    assert "Usage: " in shown.stdout


@pytest.mark.parametrize("width", [80, 100])
def test_the_help_of_generate_is_running_text_in_panels(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    page = run("generate", "--help").stdout
    assert max(map(len, page.splitlines())) <= width
    titles = [line.split()[1] for line in page.splitlines() if line.startswith("╭")]
    assert titles == ["Options", "Key", "Model", "Decoding", "Speed", "Output"]
    text = " ".join(page.replace("│", " ").split())
    assert "[default: the model's own, or 32]" in text
    assert "random, confidence, entropy, margin or left_to_right. [default: confidence]" in text
    assert "--no-repetition-guard turns it off. [default: off]" in text
    assert "without a mark. --baseline marks with another watermark" in text
    assert "--chat Put each prompt" in text


def test_another_spelling_stands_in_the_text_of_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = " ".join(run("detect", "--help").stdout.replace("│", " ").split())
    assert "--normalise <list[str]>" in text
    assert "may be repeated. Also --normalize." in text


def test_the_version_is_printed() -> None:
    import dgmark

    printed = run("--version")
    assert (printed.exit_code, printed.stdout) == (0, f"dgmark {dgmark.__version__}\n")


def test_the_shell_completes_flags_and_choices() -> None:
    from typer.testing import CliRunner

    def completed(words: str) -> list[str]:
        shell = {"_DGMARK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        return CliRunner().invoke(app, [], prog_name="dgmark", env=shell).stdout.split()

    assert completed("dgmark generate --stra") == ["--strategy"]
    assert completed("dgmark generate --strategy e") == ["entropy"]
    assert "--show-completion" in run("--help").stdout
