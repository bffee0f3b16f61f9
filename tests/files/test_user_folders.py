"""The folders of a user's own files, whatever the environment says of them."""

import sys
from pathlib import Path

import pytest

from dgmark.errors import KeyFileNotFound, SettingsError
from dgmark.files.user_folders import cache_folder, key_folder
from dgmark.watermark.key import WatermarkKey

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have folders of their own")


@pytest.mark.parametrize(
    ("stated", "settings", "cache"),
    [
        (None, "/home/me/.config", "/home/me/.cache"),
        ("", "/home/me/.config", "/home/me/.cache"),
        ("here", "/home/me/.config", "/home/me/.cache"),
        ("./here", "/home/me/.config", "/home/me/.cache"),
        ("~/there", "/home/me/.config", "/home/me/.cache"),
        ("/srv/xdg", "/srv/xdg", "/srv/xdg"),
    ],
)
def test_a_relative_path_is_ignored(
    monkeypatch: pytest.MonkeyPatch, stated: str | None, settings: str, cache: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("DGMARK_CACHE", raising=False)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        if stated is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, stated)
    assert key_folder() == Path(settings, "dgmark", "keys")
    assert cache_folder() == Path(cache, "dgmark")


def test_without_a_home_nothing_is_kept_in_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "DGMARK_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a number without a name, and no HOME
    for folder, variable in ((key_folder, "XDG_CONFIG_HOME"), (cache_folder, "XDG_CACHE_HOME")):
        with pytest.raises(SettingsError, match=f"set HOME, or {variable} to an absolute path"):
            folder()
    with pytest.raises(KeyFileNotFound, match="the key file press cannot be read"):
        WatermarkKey.load("press")
