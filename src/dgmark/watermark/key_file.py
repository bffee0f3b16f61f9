"""The key file: JSON with mode 0600. It is never overwritten, and no error message shows the secret."""

import json
import os
import re
import stat
import sys
import warnings
from io import BufferedIOBase
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from dgmark.arguments.checks import FirstVersion, as_path, flag, shown
from dgmark.errors import KeyFileError, KeyFileExists, KeyFileFormat, KeyFileNotFound, SettingsError
from dgmark.files.inputs import STDIN, open_file, open_stdin_alone
from dgmark.files.user_folders import key_folder
from dgmark.watermark.secret import Secret

MAX_FILE_BYTES = 65_536
PRIVATE = 0o600  # the mode of a key file


class FileMode(NamedTuple):
    """The mode of an open file, and whether whoever runs this can change it.

    Secrets that a container platform mounts belong to root, or are on a file system that cannot be written.
    """

    bits: int
    changeable: bool = True


class KeyFilePermissionWarning(UserWarning):
    """Users other than the owner can read the key file."""


def new_key_file(name: str) -> Path:
    """The file of a new key of this name in the user's folder of keys, which is made if it is not there."""
    if not re.fullmatch(r"\w[\w .-]*", name):
        raise SettingsError(
            f"{shown(name)} is no name for a file of the folder of keys, which has letters, digits, spaces, dots and "
            "hyphens: choose another, or give the key a FILE",
            field="name",
        )
    folder = key_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise KeyFileNotFound(f"the folder of keys {folder} cannot be made ({error.strerror}): give a FILE") from error
    return folder / f"{name}.json"


def found_key_file(path: Path) -> Path:
    """A key file by its path; or by its name in the user's folder of keys, where no file has this path."""
    if str(path) in (STDIN, os.curdir) or path.name != str(path) or os.path.exists(path):
        return path
    try:
        in_folder = key_folder() / f"{path}.json"
    except SettingsError:
        return path
    return in_folder if os.path.exists(in_folder) else path


def read_private(path: Path, maker: str) -> tuple[Secret, FileMode]:
    """The content and the mode of a file with a secret. Check the mode once the content is known to be one.

    "-" is standard input, which nothing else can be read from then. Errors name the command that makes such files.
    """
    try:
        with open_stdin_alone("a key") if str(path) == STDIN else open_file(path) as file:
            content, mode = Secret(file.read(MAX_FILE_BYTES + 1)), _mode_of(file)
    except IsADirectoryError:
        raise KeyFileNotFound(
            f"the key file {path} cannot be read, because it is a folder: give one file of it, made with `{maker}` "
            "(`dgmark detect --keys FOLDER` tries all watermark keys of a folder)"
        ) from None
    except OSError as error:
        raise KeyFileNotFound(
            f"the key file {path} cannot be read ({error.strerror}): make one with `{maker} FILE`"
        ) from error
    if len(content) > MAX_FILE_BYTES:
        raise KeyFileFormat(
            f"{path} has more than {MAX_FILE_BYTES} bytes, so it is not a key file: give the right file"
        )
    encoding = json.detect_encoding(content)
    if encoding != "utf-8" and b"{" in content[:8]:  # JSON, perhaps behind a byte order mark
        name = "UTF-8 with a byte order mark" if encoding == "utf-8-sig" else encoding[:6].upper()
        raise KeyFileFormat(
            f"the key file {path} is in {name}, as editors and shells of Windows write it: save it as UTF-8 "
            "without a byte order mark"
        )
    return content, mode


def _mode_of(file: BufferedIOBase) -> FileMode:
    """The mode of an open file; 0600 for a pipe, which is read once."""
    try:
        number = file.fileno()
    except OSError:  # standard input that was replaced has no number
        return FileMode(PRIVATE)
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode):
        return FileMode(PRIVATE)
    changeable = True
    if os.name == "posix":
        mounted_to_read = os.fstatvfs(number).f_flag & os.ST_RDONLY
        changeable = not mounted_to_read and os.geteuid() in (0, status.st_uid)
    return FileMode(stat.S_IMODE(status.st_mode), changeable)


class KeyFile(BaseModel):
    """The fields of the key file; those of the spec stand beside them.

    `package` names the distribution that adds the key's rule; None for a rule of dgmark's own.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    format: Literal["dgmark-key"]
    version: FirstVersion
    key_id: str
    name: str | None = None
    package: str | None = None
    secret: str | None = Field(repr=False)
    prf: str
    fingerprint: str


def check_mode(mode: FileMode, path: Path, allow_open: bool) -> None:
    """Refuse a file with a secret that every user can read, and warn of one that others than its owner can use.

    A file whose mode cannot be changed here may be read by a group, by which Kubernetes gives a secret to a pod.
    """
    bits, changeable = mode
    remedy = f"run `chmod 600 {path}`" if changeable else "have it mounted with mode 0400 (docs/service.md)"
    if bits & stat.S_IROTH and not flag("allow_open", allow_open):
        accept = "" if changeable else ", or accept it with --allow-open-key (`allow_open=True` in Python)"
        raise KeyFileError(
            f"every user of this machine can read the key file {path} (mode {bits:04o}): "
            f"{remedy}{accept}, and replace the key if it may have been read"
        )
    if bits & (stat.S_IRWXG | stat.S_IRWXO) & ~(0 if changeable else stat.S_IRGRP):
        warnings.warn(
            f"the key file {path} has mode {bits:04o}; {remedy} so that only you can read it",
            KeyFilePermissionWarning,
            stacklevel=3,
        )


def write_private(path: Path, content: Secret) -> None:
    """Create `path` with mode 0600 and `content`, or leave nothing behind; "-" is standard output."""
    if str(as_path(path, "a key file")) == STDIN:
        try:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        except OSError as error:
            raise KeyFileNotFound(f"standard output could not be written ({error.strerror})") from error
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise KeyFileExists(
            f"{path} exists, and key files are never overwritten, because texts marked with a lost key cannot be "
            "proved: choose another path"
        ) from None
    except OSError as error:
        raise KeyFileNotFound(
            f"the key file {path} cannot be written ({error.strerror}); choose another path"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), PRIVATE)  # whatever the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink()
        if isinstance(error, OSError):
            raise KeyFileNotFound(f"the key file {path} could not be written ({error.strerror})") from error
        raise
