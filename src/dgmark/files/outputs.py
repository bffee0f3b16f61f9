"""Outputs: never a file that is read, never a key, and written whole or not at all."""

import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dgmark.arguments.checks import as_path
from dgmark.errors import InputError, SettingsError
from dgmark.files.inputs import STDIN

# What files have in them that nothing makes again: watermark keys, commitments to them, access tokens, and private JSON
# Web Keys, as signing keys are. They are looked for anywhere in a file, so that a list of keys and a file that was cut
# off are found, too. A row of dgmark may have the id "secret", so such a value is not looked for.
_PROTECTED = re.compile(
    rb"""(?<!": )["']secret["']|"dgmark-(?:key|key-commitment|tokens)"|"d"\s*:\s*"[\w-]|PRIVATE KEY-----"""
)
# each match holds one of these, which are found about ten times as fast; an output that is gone on with may be long
_HELD_BY_MATCHES = (b"secret", b'"dgmark-', b'"d"', b"PRIVATE KEY-----")
_CHUNK, _OVERLAP = 2**20, 2**8  # bytes of a file that are searched at a time, and those that are searched twice


def check_output(out: Path | None, sources: Iterable[str | None]) -> None:
    """Refuse an output that is read, under any name or in a folder, or that holds a secret of ours.

    Both are a SettingsError. Its rows would be read as inputs, endlessly, or replace the only copy of them. The sources
    are all that the command reads: files, folders, "-" for standard input, and None for none.
    """
    if out is not None:
        if str(out) == STDIN:
            raise SettingsError(
                "an output is a file, and - would be one of that name: leave --out out to have rows on standard "
                "output, or give /dev/stdout, or ./- for the file"
            )
        _refuse_protected(as_path(out, "the output"))
    for source in sources:
        if out is None or source is None:
            continue
        if os.path.isdir(source) and Path(os.path.realpath(out)).is_relative_to(os.path.realpath(source)):
            raise SettingsError(f"the output {out} lies in {source}, which is read: choose a place outside it")
        if _are_same(out, source):
            name = "standard input" if source == STDIN else source
            raise SettingsError(f"the output {out} is the same file as {name}, which is read: choose another file")


def _are_same(out: Path, source: str) -> bool:
    try:
        return os.path.samefile(out, sys.stdin.fileno() if source == STDIN else source)
    except (OSError, ValueError):  # one of them does not exist, or standard input is closed
        return False


@contextmanager
def atomic_file(path: Path, *, over_protected: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to `path`. If the block succeeds, its file is synced to disk and replaces `path`.

    Of a link, the file that it leads to is replaced. A file that is replaced keeps its permissions. One that nothing
    makes again, such as a key, is a SettingsError unless `over_protected` is set; a folder or a device is an OSError.
    """
    path = Path(os.path.realpath(as_path(path, "the output")))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    if not over_protected:
        _refuse_protected(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_protected(path: Path) -> None:
    """Refuse to write over a file that holds anything of `_PROTECTED`, or that may, as it cannot be read."""
    try:
        protected = path.is_file() and _is_protected(path)
    except OSError as error:
        raise SettingsError(
            f"{path} exists and cannot be read ({error.strerror}), so that it may hold a key: choose another file for "
            "the output"
        ) from error
    if protected:
        raise SettingsError(
            f"{path} holds a private key, access tokens or a commitment to a key, or a part of one, and is never "
            "overwritten: choose another file for the output, or move this one away"
        )


def _is_protected(path: Path) -> bool:
    """Whether a file has anything of `_PROTECTED`, in UTF-8 or UTF-16; OSError if it cannot be read."""
    searched = b""
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            searched = searched[-_OVERLAP:] + chunk.replace(b"\0", b"")  # UTF-16 has zeros between letters
            if any(part in searched for part in _HELD_BY_MATCHES) and _PROTECTED.search(searched):
                return True
    return False


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `folder`. If the block succeeds, it replaces `folder`.

    Of a link, the folder that it leads to is replaced.
    """
    folder = Path(os.path.realpath(folder))
    for place, _, names in os.walk(folder):
        for name in names:
            _refuse_protected(Path(place, name))
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        yield temporary
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def atomic_write(path: Path, content: str | bytes, *, over_protected: bool = False) -> None:
    """Write a file whole or not at all, see `atomic_file`."""
    try:
        with atomic_file(path, over_protected=over_protected) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; make room, or choose another place") from error
