"""The bar: on a terminal it shows rows, tokens a second and the time left; elsewhere it shows nothing."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dgmark.cli import bar as bars
from dgmark.cli.bar import row_bar
from support.command_line import rows, run

PROMPTS = "".join(
    json.dumps({"id": f"p{i}", "prompt": f"The {word} was"}) + "\n" for i, word in enumerate(("sea", "sun"))
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal on stderr gets."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, force_interactive=True, highlight=False)
    monkeypatch.setattr(bars, "stderr", lambda: console)
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


def command(source: Path, *more: str) -> list[str]:
    settings = ["--length", "16", "--block-length", "16", "--json", *more]
    return ["generate", "--no-watermark", "--prompts", str(source), *settings]


def test_a_stream_has_no_bar(terminal: io.StringIO, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(PROMPTS.splitlines(keepends=True)[0])
    done = run(*command(source, "--stream"))
    assert [row["id"] for row in rows(done.stdout)] == ["p0"]
    assert "rows" not in terminal.getvalue()


@pytest.mark.slow
def test_with_stderr_on_a_terminal_the_rows_still_go_to_stdout(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(PROMPTS)
    screen, end = pty.openpty()
    started = [sys.executable, "-m", "dgmark", *command(source)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=end, env=environment) as running:
        os.close(end)
        out = running.communicate()[0]
    shown = b""
    try:
        while piece := os.read(screen, 65536):
            shown += piece
    except OSError:  # how a terminal says that its other end is closed
        pass
    os.close(screen)
    assert running.returncode == 0, shown
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["p0", "p1"]
    assert b'"id"' not in shown
    assert b"rows" in shown
