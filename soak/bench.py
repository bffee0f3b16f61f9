"""The bench of the attempts: a key, marked texts, what undisturbed runs give; commands, and what they must never do."""

import base64
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

from support.known_keys import known_key
from support.marked_texts import marked_text

HANGS = 120  # seconds after which a command counts as hanging
ROWS = 2000
KEY = known_key("soak", rule="bigram")
TEXT = marked_text(KEY, 128)
SECRETS = (base64.b64encode(KEY.secret or b"")[:24], (KEY.secret or b"").hex()[:32].encode())


class Ran(NamedTuple):
    """A command that ended."""

    code: int
    output: bytes


class Bench:
    """Files for the attempts in one folder.

    Attributes:
        folder: the folder.
        key: the file of a key; its secret must never be seen in an output.
        marked: a text that is found with the key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key, self.marked = folder / "key.json", folder / "marked.txt"
        KEY.save(self.key)
        self.marked.write_text(TEXT)

    def path(self, name: str) -> Path:
        """A path in the folder where nothing is."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        return path

    def start(self, arguments: Sequence[object], *limits: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, under limits as `prlimit` takes them."""
        limited = ["prlimit", *limits] if limits else []
        command = [sys.executable, "-B", "-m", "dgmark", *map(str, arguments)]  # -B: limits would cut bytecode, too
        return subprocess.Popen(
            [*limited, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environment},
        )

    def end(self, process: subprocess.Popen[bytes], *codes: int) -> Ran:
        """Wait for a command, which may have these exit codes and does nothing that dgmark promises never to do."""
        try:
            output, _ = process.communicate(timeout=HANGS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        last = output[-300:].decode(errors="replace")
        assert process.returncode in codes, last
        assert b"Traceback" not in output, last
        assert b"bug in dgmark" not in output, last
        assert not any(secret in output for secret in SECRETS), "the secret of a key is in the output"
        return Ran(process.returncode, output)

    def run(self, *arguments: object, codes: Sequence[int] = (0,), limits: Sequence[str] = ()) -> Ran:
        """Run a command."""
        return self.end(self.start(arguments, *limits), *codes)

    # --- files ---

    @cached_property
    def rows(self) -> Path:
        """Rows of texts: shuffled words of the marked text, so that every row is another text."""
        words, rng, path = TEXT.split(), random.Random(0), self.path("rows.jsonl")
        with path.open("w") as file:
            for number in range(ROWS):
                rng.shuffle(words)
                text = " ".join(words[:60]) if number % 50 else TEXT
                file.write(json.dumps({"id": f"r{number}", "prompt": "Once", "text": text}) + "\n")
        return path

    @cached_property
    def few_rows(self) -> Path:
        """The first rows, for slow commands."""
        path = self.path("few.jsonl")
        path.write_text("".join(self.rows.read_text().splitlines(keepends=True)[:40]))
        return path

    # --- commands that write rows ---

    def command(self, name: str, out: Path) -> list[object]:
        """A command that writes rows to `out`."""
        if name == "detect":
            return ["detect", "--key", self.key, "--out", out, self.rows]
        command = ["generate", "--key", self.key, "--prompts", self.few_rows, "--out", out, "--no-trace"]
        return [*command, "--length", 8, "--block-length", 8, "--cache", "dual", "--batch-size", 2]

    def undisturbed(self, name: str) -> bytes:
        """The file that the command writes if nothing disturbs it."""
        path = self.folder / f"undisturbed-{name}"
        if not path.exists():
            self.run(*self.command(name, path))
        return path.read_bytes()

    def finish(self, command: Sequence[object], out: Path) -> None:
        """Run a command again: its file is that of an undisturbed run."""
        self.run(*command)
        self.check_rows(str(command[0]), out)

    def check_rows(self, name: str, out: Path) -> None:
        """Check that a file is that of an undisturbed run, byte for byte."""
        content, expected = out.read_bytes(), self.undisturbed(name)
        if content != expected:
            lines, wanted = content.splitlines(), expected.splitlines()
            changed = len(set(lines) - set(wanted))
            pytest.fail(f"{len(lines)} rows in place of {len(wanted)}, {changed} of them changed or broken")
