"""The folders of a user's own files: keys, and models that were merged.

A variable of the XDG Base Directory Specification counts only if its path is absolute, as the specification says.
"""

import os
from pathlib import Path

from dgmark.errors import SettingsError

CACHE_VARIABLE = "DGMARK_CACHE"


def key_folder() -> Path:
    """The user's own folder of keys, which need not exist: `dgmark/keys` where the system keeps settings."""
    from typer import get_app_dir  # which knows where that is on each system

    return _absolute(Path(get_app_dir("dgmark")), "XDG_CONFIG_HOME", "~/.config/dgmark") / "keys"


def cache_folder() -> Path:
    """The folder for merged models: $DGMARK_CACHE, or dgmark in the user's cache folder."""
    stated = os.environ.get(CACHE_VARIABLE)
    if stated:
        return Path(os.path.expanduser(stated))
    return _absolute(Path(os.environ.get("XDG_CACHE_HOME", ""), "dgmark"), "XDG_CACHE_HOME", "~/.cache/dgmark")


def _absolute(folder: Path, variable: str, otherwise: str) -> Path:
    """The folder that a variable stated, or another one if that is relative."""
    if folder.is_absolute():
        return folder
    folder = Path(os.path.expanduser(otherwise))
    if not folder.is_absolute():
        raise SettingsError(f"your home folder is not known: set HOME, or {variable} to an absolute path")
    return folder
