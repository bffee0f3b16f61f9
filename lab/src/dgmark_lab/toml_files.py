"""Settings and experiments as TOML files: validated strictly before anything starts, and every mistake is named."""

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from dgmark.arguments.checks import field_problems
from dgmark.errors import SettingsError

Content = TypeVar("Content", bound=BaseModel)


class Table(BaseModel):
    """A table of a TOML file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def read_toml(path: Path, kind: type[Content]) -> Content:
    """Read and validate a TOML file.

    Raises:
        SettingsError: the file is unreadable, not TOML, or has unknown, missing or invalid keys.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; give a TOML file") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error
    return parse_toml(content, kind, str(path))


def parse_toml(content: str, kind: type[Content], source: str) -> Content:
    """Validate the text of a TOML file.

    Raises:
        SettingsError: it is not TOML, or has unknown, missing or invalid keys; the message names each.
    """
    try:
        fields = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{source} is not valid TOML: {error}") from None
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise SettingsError(f"{source}: {field_problems(error)}") from None
