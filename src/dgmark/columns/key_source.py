"""Where a key is read from in each process, so that no job carries its secret: a file, a folder, or the environment."""

import os
from typing import Any

from dgmark.arguments.checks import path_text
from dgmark.detection.keyring import load_keys
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey, key_of_environment

ENVIRONMENT = "env:"
# a path, "env:NAME", or a key for use in this process
KeySource = str | os.PathLike[str] | WatermarkKey


def check_source(source: Any) -> str | WatermarkKey:
    """A source of keys as a text, or a key, which does not travel; a SettingsError for anything else."""
    if isinstance(source, WatermarkKey):
        return source
    text = path_text(source, "a key file")
    if text == ENVIRONMENT:
        raise SettingsError("env: names no environment variable: give its name, such as env:DGMARK_KEY")
    return text


def read_keys(source: str | WatermarkKey, *, allow_open: bool = False) -> list[WatermarkKey]:
    """The keys of a source: all of a folder, or one.

    Raises:
        KeyFileError: there is no key there, or every user of the machine can read it and `allow_open` is not set.
    """
    if isinstance(source, WatermarkKey):
        return [source]
    if source.startswith(ENVIRONMENT):
        return [key_of_environment(source.removeprefix(ENVIRONMENT))]
    if os.path.isdir(source):
        return load_keys(source, allow_open=allow_open)
    return [WatermarkKey.load(source, allow_open=allow_open)]


def refuse_to_travel(*parts: object) -> None:
    """Refuse to pickle a key, a tokenizer or a model, which each process reads itself, with a SettingsError."""
    for part in parts:
        if isinstance(part, WatermarkKey):
            raise SettingsError(
                "this holds a key with its secret, which would lie in the object store, the logs or the files of a "
                "job: give the path of the key file, or env:NAME for an environment variable that holds its content, "
                "and each process reads the key itself"
            )
        if part is not None and not isinstance(part, str):
            raise SettingsError(
                f"this holds a loaded {type(part).__name__}, which does not travel to other processes: give its name "
                "or path, and each process loads it itself"
            )
