"""Open what a user names as input: files and pipes, never a device or a folder.

Knows nothing about the content.
"""

import errno
import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from dgmark.arguments.checks import as_path, several
from dgmark.errors import InputError, NoTexts, SettingsError

STDIN, STDIN_NAME = "-", "standard input"
# bytes of a line of JSON Lines
MAX_LINE_BYTES = 64 * 2**20
_FILE_NAME = re.compile(r"\S+\.(txt|md|jsonl?|jsonl\.gz|csv|tsv|xlsx|parquet)")


def names_of(inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """The names of inputs that are given as one name or several, as given; no name of a file is a SettingsError."""
    names = [inputs] if isinstance(inputs, str | os.PathLike) else several(inputs, "inputs")
    for name in names:
        as_path(name, "an input")
    return [os.fspath(name) for name in names]


def named_file(given: str) -> str | None:
    """The file that is meant by what a user gives as a text or a file; None for a text. "-" is standard input."""
    if given == STDIN or "://" in given or (os.path.exists(given) and not os.path.isdir(given)):
        return given
    if _FILE_NAME.fullmatch(given):
        raise NoTexts(f"there is no file {given}: check its path")
    return None


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file, or a pipe such as the shell's `<(command)`.

    A folder, a device, and what cannot be opened are an OSError.
    """
    file = open(as_path(path, "a file"), "rb")  # noqa: SIM115 (the caller closes it)
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is a device, not a file", os.fspath(path))


# standard input, once it was read for something that nothing else may be read with, and what that was
_taken: tuple[object, str] | None = None


@contextmanager
def open_stdin_alone(what: str) -> Iterator[io.BufferedIOBase]:
    """Open standard input for one thing, such as "a key"; whatever reads it later gets a SettingsError."""
    global _taken
    file = _free_stdin()
    _taken = sys.stdin, what
    yield file


def _free_stdin() -> io.BufferedIOBase:
    """Standard input, which is refused if it was taken."""
    if _taken is not None and _taken[0] is sys.stdin:
        raise SettingsError(f"standard input was read for {_taken[1]} already: give a file for one of the two")
    return cast(io.BufferedIOBase, sys.stdin.buffer)


@contextmanager
def open_input(path: str, what: str = "a file") -> Iterator[io.BufferedIOBase]:
    """Open a file or pipe of the user's, or standard input for "-", which is not closed.

    If it cannot be opened, or read in the block, a NoTexts asks for what the user should have named, such as "a text
    file".
    """
    try:
        if path == STDIN:
            yield _free_stdin()
        else:
            with open_file(path) as file:
                yield file
    except OSError as error:
        name = STDIN_NAME if path == STDIN else path
        raise NoTexts(f"{name} cannot be read: {error.strerror or error}; give {what}") from error


def decode(content: bytes, source: str) -> str:
    """The text of a file's bytes; what is not UTF-8 is an InputError."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{source} is not a text in UTF-8 from byte {error.start} on: save it as UTF-8") from None


def read_bytes(path: str | os.PathLike[str], what: str = "a file") -> bytes:
    """The content of a file of the user's, or of standard input for "-", up to `MAX_LINE_BYTES` bytes."""
    name = os.fspath(as_path(path, what))
    with open_input(name, what) as file:
        return checked_size(file.read(MAX_LINE_BYTES + 1), STDIN_NAME if name == STDIN else name)


def checked_size(content: bytes, source: str = STDIN_NAME) -> bytes:
    """Refuse more than `MAX_LINE_BYTES` bytes with an InputError."""
    if len(content) > MAX_LINE_BYTES:
        raise InputError(f"{source} holds more than {MAX_LINE_BYTES} bytes: give less")
    return content


def bounded_lines(file: io.BufferedIOBase, largest: int = MAX_LINE_BYTES, line: bytes = b"") -> Iterator[bytes | None]:
    """The lines of a file; None in place of a line of more than `largest` bytes, of which no more is in memory.

    The first line, or `largest + 1` bytes of it, may be given if it was read already.
    """
    while line := line or file.readline(largest + 1):
        too_long = len(line) > largest
        yield None if too_long else line
        while too_long and line and not line.endswith(b"\n"):
            line = file.readline(2**16)
        line = b""
