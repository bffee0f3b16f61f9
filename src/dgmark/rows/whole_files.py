"""Files and folders that appear whole or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dgmark.errors import InputError


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the file's place, and is on disk, when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield beside
        with open(beside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to fill; it takes the folder's place when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        yield beside
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one go.

    Raises:
        InputError: it cannot be written; what was there before stays.
    """
    try:
        with replacing_file(path) as beside:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
