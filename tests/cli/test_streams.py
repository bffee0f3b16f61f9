"""Real processes whose standard streams are closed, full or cut off: an error and its exit code, never a verdict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.cases import cases
from support.known_keys import known_key

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full and a shell"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    known_key("streams").save(folder / "key.json")
    (folder / "text.txt").write_text("The king went to the sea. The queen stayed at home.")
    return folder


def shell(folder: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash in which `dgmark` is this checkout's."""
    script = f'dgmark() {{ "{sys.executable}" -m dgmark "$@"; }}; {line}'
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


DETECT = "dgmark detect --key key.json"


@pytest.mark.cover(1)
@pytest.mark.parametrize("line", cases(__file__, "not_written"))
@pytest.mark.parametrize("stream", [">/dev/full", ">&-"])
def test_results_that_cannot_be_written_are_an_error(folder: Path, line: str, stream: str) -> None:
    done = shell(folder, f"{line} {stream}")
    assert done.returncode == 4
    assert done.stderr.startswith("error: standard output cannot be written (")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_key_is_kept_though_nobody_hears_of_it(folder: Path) -> None:
    done = shell(folder, "dgmark keygen made.json >/dev/full; code=$?; dgmark key show made.json; exit $code")
    assert done.returncode == 4
    assert "files are kept as written" in done.stderr
    assert "key_fingerprint" in done.stdout


@pytest.mark.parametrize("line", [DETECT, "dgmark generate --key key.json", "dgmark infill --key key.json -"])
def test_a_closed_standard_input_is_an_error(folder: Path, line: str) -> None:
    done = shell(folder, f"{line} <&-")
    assert done.returncode == 4
    assert "standard input cannot be read: Bad file descriptor" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-"])
def test_errors_that_nobody_hears_keep_their_exit_code(folder: Path, stream: str) -> None:
    assert shell(folder, f"dgmark key show missing.json {stream}").returncode == 5


def test_a_terminal_of_no_columns_hides_nothing(folder: Path) -> None:
    line = f"{DETECT} text.txt; {DETECT} text.txt missing.txt; {DETECT} missing.txt; {DETECT} --nothing"
    shown, wanted = shell(folder, f"export COLUMNS=0 LINES=0; {line}"), shell(folder, f"unset COLUMNS LINES; {line}")
    assert (shown.stdout, shown.stderr) == (wanted.stdout, wanted.stderr)
    assert all(stream.count("\n") > 3 for stream in (shown.stdout, shown.stderr))


def test_a_reader_that_leaves_gets_no_verdict_for_it(folder: Path) -> None:
    line = f"{DETECT} --check text.txt | true; exit ${{PIPESTATUS[0]}}"
    done = shell(folder, line)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_pipe_of_the_shell_is_read_however_slow_it_is(folder: Path) -> None:
    wanted = shell(folder, f"{DETECT} --format csv text.txt").stdout.partition("\n")[2].partition(",")[2]
    done = shell(folder, f"{DETECT} --format csv <(sleep 1; cat text.txt)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.partition("\n")[2].partition(",")[2] == wanted != ""


def test_names_that_are_not_utf_8_are_printed_as_they_are(folder: Path) -> None:
    done = shell(folder, "dgmark keygen $'k\\xff.json' | cat -v")
    assert done.stdout.startswith("kM-^?.json: key ")
