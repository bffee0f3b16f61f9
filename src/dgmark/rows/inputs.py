"""Open what a user names as input: files and pipes, never a device, a folder, or a pipe that nobody writes to.

Knows nothing about the content.
"""

import io
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from dgmark.errors import InputError, NoTexts, as_path, several

STDIN, STDIN_NAME = "-", "standard input"
# seconds until somebody must have opened a named pipe for writing
PATIENCE = 10.0
# bytes of a line of JSON Lines
MAX_LINE_BYTES = 64 * 2**20


@runtime_checkable
class Bytes(Protocol):
    """An open file of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; all without it."""
        ...

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or at most `size` bytes of it."""
        ...


def names_of(inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The names of inputs that are given as one name or as several, as they were given.

    Raises:
        SettingsError: a name is neither a text nor a path.
    """
    names = [inputs] if isinstance(inputs, str | os.PathLike) else several(inputs, "inputs")
    for name in names:
        as_path(name, "an input")
    return [os.fspath(name) for name in names]


class NotReadable(OSError):
    """What the path leads to is not read as input; the message says why."""

    def __init__(self, path: str | os.PathLike[str], why: str) -> None:
        super().__init__(0, why, os.fspath(path))


class _Watched(io.FileIO):
    """A pipe that notices whether somebody holds its other end."""

    has_writer = False

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        """Read without blocking: None if nothing has come yet, 0 if there is no writer."""
        read: int | None = super().readinto(buffer)
        self.has_writer = read != 0
        return read


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file, or a pipe that somebody writes to, such as the shell's `<(command)`. The pipe may be slow.

    Raises:
        OSError: it cannot be opened, is a folder or a device, or is a pipe that nobody opened for writing within
            `PATIENCE` seconds.
    """
    # without O_NONBLOCK, opening a pipe that nobody writes to blocks for ever
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        os.close(descriptor)
        raise NotReadable(path, "it is a folder" if stat.S_ISDIR(mode) else "it is a device, not a file")
    raw = _Watched(descriptor)
    file = io.BufferedReader(raw)
    if stat.S_ISFIFO(mode):
        if not (select.select([raw], [], [], PATIENCE)[0] or file.peek(1) or raw.has_writer):
            file.close()
            raise NotReadable(path, f"it is a pipe, and nobody opened it for writing within {PATIENCE:g} seconds")
        os.set_blocking(descriptor, True)
    return file  # type: ignore[return-value] # typeshed: generic over its raw file


@contextmanager
def open_input(path: str, what: str = "a file") -> Iterator[Bytes]:
    """Open a file or pipe of the user's, or standard input for "-", which is not closed.

    Args:
        path: the file, or "-".
        what: what the user should have named, such as "a text file".

    Raises:
        NoTexts: it cannot be opened, or reading it in the block fails.
    """
    try:
        if path == STDIN:
            yield sys.stdin.buffer
        else:
            with open_file(path) as file:
                yield file
    except OSError as error:
        name = STDIN_NAME if path == STDIN else path
        raise NoTexts(f"{name} cannot be read: {error.strerror or error}; give {what}") from error


def decode(content: bytes, source: str) -> str:
    """The text of a file's bytes.

    Raises:
        InputError: they are not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not a text in UTF-8 from byte {error.start} on: save it as UTF-8") from None


def read_stdin() -> str:
    """The text of standard input.

    Raises:
        InputError: it cannot be read, is not UTF-8, or is longer than `MAX_LINE_BYTES` bytes.
    """
    with open_input(STDIN, "a text") as file:
        content = file.read(MAX_LINE_BYTES + 1)
    return decode(checked_size(content), STDIN_NAME)


def checked_size(content: bytes, source: str = STDIN_NAME) -> bytes:
    """Refuse more than `MAX_LINE_BYTES` bytes.

    Raises:
        InputError: it is longer.
    """
    if len(content) > MAX_LINE_BYTES:
        raise InputError(f"{source} holds more than {MAX_LINE_BYTES} bytes: give less")
    return content


def bounded_lines(file: Bytes, largest: int = MAX_LINE_BYTES) -> Iterator[bytes | None]:
    """The lines of a file; None in place of a line of more than `largest` bytes, of which no more is in memory."""
    while line := file.readline(largest + 1):
        if len(line) <= largest:
            yield line
            continue
        yield None
        skip_line(file, line)


def skip_line(file: Bytes, begun: bytes) -> None:
    """Skip the rest of a line that was read in part."""
    while begun and not begun.endswith(b"\n"):
        begun = file.readline(2**16)
