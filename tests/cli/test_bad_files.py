"""Every command with files that are not files: one clear error with its exit code, no traceback, and an end."""

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cases import data
from support.command_line import run
from support.known_keys import known_key

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs the pipes and devices of Unix")

PATIENCE = 120  # seconds until a command counts as hanging


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, a text, rows, and things that no command can use."""
    folder = tmp_path_factory.mktemp("files")
    known_key("bad files").save(folder / "key.json")
    (folder / "text.txt").write_text("The king went to the sea. The queen stayed at home.")
    (folder / "rows.jsonl").write_text('{"id": "a", "text": "The king went to the sea."}\n')
    (folder / "empty").write_text("")
    (folder / "bytes").write_bytes(b"The \xff\xfe king")
    (folder / "folder").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _commands_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that waits for ever fails its test instead of stopping all of them."""
    monkeypatch.chdir(folder)
    before = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _too_long(*_: object) -> None:
    raise AssertionError(f"the command did not end within {PATIENCE} seconds")


BAD: dict[str, str] = data(__file__, "bad") | {"long": "n" * 5000, "not UTF-8": os.fsdecode(b"n\xff")}
# a document's character set is found
READS_ANY_CHARSET = {("detect", "bytes")}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", data(__file__, "commands"))
def test_a_file_that_is_none_is_one_clear_error(command: str, bad: str, folder: Path) -> None:
    if not Path("/proc/self/mem").exists() and bad == "memory":
        pytest.skip("needs /proc")
    if (command, bad) in READS_ANY_CHARSET:
        pytest.skip("documents may be in other character sets (tests/documents)")
    line, code = data(__file__, "commands")[command]
    before = {path.name for path in folder.iterdir()}
    done = run(*(BAD[bad] if word == "FILE" else word for word in shlex.split(line)), code=code)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    named = BAD[bad].encode(errors="backslashreplace").decode()
    shown = done.stderr.replace("\n", "")
    assert named[:40] in shown or (bad == "empty" and "there is no" in shown)
    assert {path.name for path in folder.iterdir()} == before, "a refused command leaves nothing behind"


@pytest.mark.parametrize("bad", ["/dev/null", "folder", "n" * 5000, "folder/no/key.json"])
def test_no_key_is_written_where_none_can_be(bad: str) -> None:
    done = run("keygen", bad)
    assert (done.exit_code, done.stdout) == (5, "")
    assert "choose another path" in done.stderr


def test_a_name_that_is_not_utf_8_is_read_and_shown(folder: Path) -> None:
    (folder / BAD["not UTF-8"]).write_text("The king went to the sea. " * 3)
    try:
        done = run("detect", "--key", "key.json", "--format", "jsonl", BAD["not UTF-8"])
    finally:
        (folder / BAD["not UTF-8"]).unlink()
    assert done.exit_code == 0
    assert '"id": "n\\udcff"' in done.stdout
