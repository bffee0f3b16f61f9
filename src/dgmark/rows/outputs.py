"""Outputs: never a file that is read, never a key, and written whole or not at all."""

import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dgmark.errors import InputError, SettingsError
from dgmark.rows.inputs import STDIN

# files that nothing makes again, by their "format": watermark keys, commitments to them, and access tokens
_PROTECTED = ("dgmark-key", "dgmark-key-commitment", "dgmark-tokens")
MAX_PROTECTED_BYTES = 2**20


def check_output(out: Path | None, sources: Iterable[str | None]) -> None:
    """Refuse an output that the command reads, under any name or in a folder, or that holds a secret of ours.

    Its rows would be read as inputs, endlessly, or replace the only copy of them.

    Args:
        out: the output, which need not exist; None for none.
        sources: all that the command reads: files, folders, "-" for standard input, and None for none.

    Raises:
        SettingsError: the output is read, or is a file that nothing makes again, such as a key.
    """
    if out is not None:
        _refuse_protected(out)
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

    Of a link, the file that it leads to is replaced. A file that is replaced keeps its permissions.

    Args:
        path: the file.
        over_protected: replace a file that nothing makes again, as its owner does.

    Raises:
        SettingsError: `path` is a file that nothing makes again, such as a key.
        OSError: `path` is a folder or a device, or cannot be written.
    """
    path = Path(os.path.realpath(path))
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
    """Refuse a file that nothing makes again: one of `_PROTECTED`, or with private JSON Web Keys, as signing keys are.

    Raises:
        SettingsError: it is one.
    """
    try:
        content = (
            json.loads(path.read_bytes()) if path.is_file() and path.stat().st_size <= MAX_PROTECTED_BYTES else None
        )
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(content, dict):
        return
    members = content.get("keys")
    keys = [content, *(members if isinstance(members, list) else [])]
    private = any(isinstance(key, dict) and {"kty", "d"} <= key.keys() for key in keys)
    if private or content.get("format") in _PROTECTED:
        what = "a private key" if private else f"a file of the format {content['format']}"
        raise SettingsError(f"{path} is {what} and is never overwritten: choose another file for the output")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `folder`. If the block succeeds, it replaces `folder`.

    Of a link, the folder that it leads to is replaced.
    """
    folder = Path(os.path.realpath(folder))
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
    """Write a file whole or not at all, see `atomic_file`.

    Raises:
        SettingsError: `path` is a file that nothing makes again, such as a key.
        InputError: the file cannot be written; an existing file stays unchanged.
    """
    try:
        with atomic_file(path, over_protected=over_protected) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; make room, or choose another place") from error
