"""The bar: on a terminal it shows rows, tokens a second and the time left; elsewhere it shows nothing."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from dgmark.cli import bar as bars
from dgmark.cli import console
from dgmark.cli.bar import row_bar
from support.command_line import rows, run
from support.known_keys import key_file_of, known_key

key_file = key_file_of(known_key("bar"))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal on stderr gets."""
    screen = io.StringIO()
    shown = Console(file=screen, force_terminal=True, width=100, force_interactive=True, highlight=False)
    monkeypatch.setattr(bars, "stderr", lambda: shown)
    return screen


def test_rows_tokens_a_second_and_the_time_left_are_shown(terminal: io.StringIO) -> None:
    with row_bar() as bar:
        assert bar.shown
        bar.show("", 0, 4, tokens_each=10)
        bar.tokens(5)
        bar.rows(2)
    shown = terminal.getvalue()
    assert "0/4 rows" in shown
    assert "2/4 rows" in shown
    assert "tokens/s" in shown
    assert ":" in shown.rpartition("tokens/s")[2]
    with row_bar("answers") as bar:
        bar.show("", 0, None)  # nobody knows how many
        bar.rows(3)
    assert "3 answers" in terminal.getvalue()


def test_without_a_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(bars, "stderr", lambda: Console(file=screen))
    with row_bar() as bar:
        bar.show("texts", 0, 4, tokens_each=10)
        bar.tokens(5)
        bar.rows(2)
        bar.clear()
        assert not bar.shown
    assert screen.getvalue() == ""


@pytest.mark.parametrize(("options", "number"), [([], 2), (["--stream"], 1)], ids=["rows", "stream"])
def test_rows_have_a_bar_and_go_to_stdout_and_a_stream_has_none(
    options: list[str], number: int, terminal: io.StringIO, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"id": "p{n}", "prompt": "The sea was"}}\n' for n in range(number)))
    settings = ["--length", 16, "--block-length", 16, "--json", *options]
    done = run("generate", "--no-watermark", "--prompts", source, *settings)
    assert [row["id"] for row in rows(done.stdout)] == ["p0", "p1"][:number]
    assert ("2/2 rows" in terminal.getvalue()) == (number == 2)
    assert '"id"' not in terminal.getvalue()


@pytest.mark.parametrize("options", [["--json"], [], ["--out", "found.jsonl"]], ids=["rows", "table", "file"])
def test_detect_has_a_bar_on_a_terminal_and_none_elsewhere(
    options: list[str], key_file: Path, terminal: io.StringIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text("".join(f'{{"id": "t{n}", "text": "The sea was calm."}}\n' for n in range(3)))
    with_bar = run("detect", "--key", key_file, *options, "in.jsonl")
    assert "3 texts" in terminal.getvalue()
    Path("found.jsonl").unlink(missing_ok=True)
    monkeypatch.setattr(bars, "stderr", lambda: Console(file=io.StringIO()))
    without = run("detect", "--key", key_file, *options, "in.jsonl")
    assert (with_bar.exit_code, with_bar.stdout) == (without.exit_code, without.stdout) == (0, with_bar.stdout)
    assert "texts" not in without.stderr.replace("Of 3 texts", "")


def test_what_is_said_beside_a_bar_goes_through_its_console(terminal: io.StringIO) -> None:
    with row_bar() as bar:
        bar.show("", 0, 4)
        console.stderr().print("a note")
        assert "a note" in terminal.getvalue()
    before = terminal.getvalue()
    console.stderr().print("another note")
    assert terminal.getvalue() == before
