"""The bench of the attempts: a key, marked texts, what undisturbed runs give; commands, and what their output shows."""

import base64
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

HANGS = 120  # seconds after which a command counts as hanging
ROWS = 2000

Row = dict[str, Any]


@dataclass(frozen=True)
class Ran:
    """A command that ended; code None if it hung and was killed."""

    arguments: Sequence[str]
    code: int | None
    output: bytes


@dataclass
class Bench:
    """Files for the attempts in one folder."""

    folder: Path
    secrets: list[bytes] = field(default_factory=list)

    def path(self, name: str) -> Path:
        """A path in the folder where nothing is."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        return path

    def start(
        self,
        arguments: Sequence[object],
        stdout: int | IO[bytes] | None = None,
        limit: Callable[[], None] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own; its output goes to a pipe, unless `stdout` is given."""
        return subprocess.Popen(
            [sys.executable, "-B", "-m", "dgmark", *map(str, arguments)],  # -B: a limit would cut bytecode, too
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if stdout is not None else subprocess.STDOUT,
            start_new_session=True,
            cwd=self.folder,
            preexec_fn=limit,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"},
        )

    def end(self, process: subprocess.Popen[bytes]) -> Ran:
        """Wait for a command."""
        hung = False
        try:
            out, err = process.communicate(timeout=HANGS)
        except subprocess.TimeoutExpired:
            hung = True
            os.killpg(process.pid, 9)
            out, err = process.communicate()
        arguments = list(map(str, process.args[3:]))  # type: ignore[index]
        return Ran(arguments, None if hung else process.returncode, (out or b"") + (err or b""))

    def run(self, *arguments: object, limit: Callable[[], None] | None = None) -> Ran:
        """Run a command."""
        return self.end(self.start(arguments, limit=limit))

    def problems(self, ran: Ran, *codes: int) -> list[str]:
        """What a run did that dgmark promises never to do; `codes` are the exit codes that it may have."""
        found = {
            f"hung for {HANGS} s": ran.code is None,
            f"exit code {ran.code}": ran.code is not None and ran.code not in codes,
            "traceback": b"Traceback" in ran.output,
            "a fault of dgmark": b"bug in dgmark" in ran.output,
            "the secret of a key in the output": any(secret in ran.output for secret in self.secrets),
        }
        named = " ".join(ran.arguments)[:200]
        last = ran.output[-300:].decode(errors="replace").strip().replace("\n", " | ")
        return [f"{what}: dgmark {named}: {last}" for what, there in found.items() if there]

    # --- files ---

    @cached_property
    def key(self) -> Path:
        """A key of the built-in model; its secret must never be seen in an output. A seed alone gives a text again."""
        path = self.path("key.json")
        self.must(self.run("keygen", path, "--subkeys", 1))
        secret = json.loads(path.read_text())["secret"]
        self.secrets += [secret[:24].encode(), base64.b64decode(secret).hex()[:32].encode()]
        return path

    @cached_property
    def other_key(self) -> Path:
        """Another key of the same model."""
        path = self.path("other-key.json")
        self.must(self.run("keygen", path))
        return path

    def key_folder(self, name: str) -> Path:
        """A folder with the key alone."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(self.key, folder)
        return folder

    @cached_property
    def marked(self) -> str:
        """A marked text that is found with the key."""
        prompt = "Once upon a time there was a king who had three sons, and"
        options = ["--length", 128, "--block-length", 32, "--cache", "dual", "--seed", 1]
        path = self.path("marked.jsonl")
        self.must(self.run("generate", "--key", self.key, "--prompt", prompt, "--out", path, *options))
        text = str(json.loads(path.read_text())["text"])
        self.path("marked.txt").write_text(text)
        return text

    @cached_property
    def signed_report(self) -> tuple[Path, Path]:
        """A signed report on the marked text, and the public keys of its signer."""
        report, signer, jwks = (self.path(name) for name in ("report.html", "signer.json", "jwks.json"))
        self.must(self.run("report", "keygen", signer))
        jwks.write_bytes(self.run("report", "jwks", signer).output)
        options = ("--report", report, "--sign", signer)
        self.must(self.run("detect", "--key", self.key, *options, self.folder / "marked.txt"))
        return report, jwks

    @cached_property
    def rows(self) -> Path:
        """Rows of texts: shuffled words of the marked text, so that every row is another text."""
        words, rng, path = self.marked.split(), random.Random(0), self.path("rows.jsonl")
        with path.open("w") as file:
            for number in range(ROWS):
                rng.shuffle(words)
                row = {"id": f"r{number}", "prompt": "Once", "text": " ".join(words[:60])}
                file.write(json.dumps(row if number % 50 else {**row, "text": self.marked}) + "\n")
        return path

    @cached_property
    def few_rows(self) -> Path:
        """The first rows, for slow commands."""
        path = self.path("few.jsonl")
        path.write_text("".join(self.rows.read_text().splitlines(keepends=True)[:40]))
        return path

    def command(self, name: str, out: Path) -> list[object]:
        """A command that writes rows to `out`."""
        return {
            "detect": ["detect", "--key", self.key, "--out", out, self.rows],
            "generate": [
                *("generate", "--key", self.key, "--prompts", self.few_rows, "--out", out, "--no-trace"),
                *("--length", 8, "--block-length", 8, "--cache", "dual", "--batch-size", 2),
            ],
        }[name]

    def undisturbed(self, name: str) -> bytes:
        """The file that the command writes if nothing disturbs it."""
        path = self.folder / f"undisturbed-{name}"
        if not path.exists():
            self.must(self.run(*self.command(name, path)))
        return path.read_bytes()

    def must(self, ran: Ran) -> None:
        """Stop the suite: without this run there is nothing to compare with."""
        if self.problems(ran, 0):
            raise RuntimeError(f"an undisturbed run failed: {ran}")


def limited(kind: int, amount: int) -> Callable[[], None]:
    """Set a resource limit in the child."""
    return lambda: resource.setrlimit(kind, (amount, amount))


def rows_of(content: bytes) -> tuple[list[Row], int]:
    """The JSON rows of a file, and how many of its lines are none; a last line without its end does not count."""
    rows, broken = [], 0
    for line in content.split(b"\n")[:-1]:
        try:
            rows.append(json.loads(line))
        except ValueError:
            broken += 1
    return rows, broken
