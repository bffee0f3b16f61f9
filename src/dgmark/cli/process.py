"""The process around a command: standard streams that are closed or full, the size of a terminal, and SIGTERM.

Knows no command.
"""

import io
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import TextIO

STDOUT = "standard output"
# sizes that the environment may state, and the least of each: the widest table has nine columns, of four characters
_SIZES = {"COLUMNS": 40, "LINES": 1}


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived: like Ctrl-C, with another exit code."""


class _OutputFile(io.FileIO):
    """Standard output, whose errors name it."""

    def write(self, content: bytes) -> int | None:  # type: ignore[override]
        """Write, or raise an error with the stream's name."""
        try:
            return super().write(content)
        except OSError as error:
            error.filename = STDOUT
            raise


class _ErrorFile(io.FileIO):
    """Standard error: what cannot be written there is lost, and the command goes on."""

    def write(self, content: bytes) -> int | None:  # type: ignore[override]
        """Write, or do nothing."""
        try:
            return super().write(content)
        except OSError:
            return len(content)


def prepare_process() -> None:
    """Replace closed standard streams, have errors of the others named, and treat SIGTERM as an interruption.

    The environment states a size of the terminal afterwards only if something can be shown in it.
    """
    # using a closed one fails, as it should, but for stderr; and no other file gets its number
    for name, mode, flags in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode, encoding="utf-8"))  # noqa: SIM115
    sys.stdout, sys.stderr = _over(sys.stdout, _OutputFile), _over(sys.stderr, _ErrorFile)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    correct_size()


def correct_size() -> None:
    """Take out of the environment what is no size, as the 0 where there is no terminal: rich would show nothing."""
    for name, least in _SIZES.items():
        stated = os.environ.pop(name, "")
        if re.fullmatch("[0-9]{1,6}", stated) and int(stated):
            os.environ[name] = str(max(int(stated), least))


def _over(stream: TextIO, raw: Callable[..., io.FileIO]) -> TextIO:
    """A stream of UTF-8 text like `stream`, and to the same place, over another raw file."""
    assert isinstance(stream, io.TextIOWrapper)
    buffer = io.BufferedWriter(raw(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(
        buffer,
        "utf-8",  # which holds any text, whatever the system's own is
        # a file's name need not be UTF-8
        "surrogateescape" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _terminate(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends the process at once
    raise Terminated


def discard_output() -> None:
    """Send what standard output still holds to nowhere, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
