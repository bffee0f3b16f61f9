"""The parent's side of the process that parses a document: starts it, waits for it, and reads its reply.

A fresh process for each document: none can change what is read of another.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import BinaryIO

from pydantic import ConfigDict, TypeAdapter

from dgmark_documents.kinds import Kind
from dgmark_documents.reading import MB, Limits, Reading, Refusal

_START = "import sys; sys.path[:] = sys.argv[2:]; from dgmark_documents.parser_process import run; run(sys.argv[1])"
# what the interpreter itself needs of the environment
_KEPT = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class _Reply(Reading):
    """What the process writes: a reading, or why there is none. It is not trusted."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    kind: str | None = None
    refusal: str | None = None
    missing: str | None = None


def parse_in_process(file: BinaryIO, kind: Kind | None, column: str, limits: Limits) -> tuple[Kind, Reading]:
    """Parse a document in a process of its own; the kind of a ZIP archive is None, as its parts say it.

    Raises:
        Refusal: the document cannot be read, or its parser crashed or passed a limit.
        ModuleNotFoundError: a library is not installed.
    """
    request = {"kind": kind, "column": column, "limits": asdict(limits)}
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, json.dumps(request)]
    os.lseek(file.fileno(), 0, os.SEEK_SET)  # of the descriptor, which the process gets, not of the buffer
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(  # noqa: S603 (no shell; the arguments are ours)
            [*command, *(place for place in sys.path if place)],
            stdin=file,
            stdout=out,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
        )
        try:
            code = process.wait(limits.seconds)
        except subprocess.TimeoutExpired as error:
            raise Refusal(f"takes more than {limits.seconds:g} seconds to read") from error
        finally:
            process.kill()
            process.wait()
        if code:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise Refusal(
                f"crashed its parser ({how}): it is damaged, or needs more than {limits.memory_bytes // MB} MB of "
                f"memory or {limits.seconds:g} seconds"
            )
        out.seek(0)
        return _checked(out.read(2 * limits.text_bytes + 1))


def _checked(content: bytes) -> tuple[Kind, Reading]:
    try:
        reply = TypeAdapter(_Reply).validate_json(content)
        if reply.missing:
            raise ModuleNotFoundError(name=reply.missing)
        if reply.refusal is not None:
            raise Refusal(reply.refusal)
        return Kind(reply.kind or ""), reply
    except ValueError as error:  # pydantic's ValidationError is one
        raise Refusal("is damaged: its parser gave no answer that can be used") from error
