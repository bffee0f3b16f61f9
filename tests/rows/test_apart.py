"""An output that is one of the inputs is refused under every name; any other place is free."""

import os
import sys
from pathlib import Path

import pytest

from dgmark.errors import SettingsError
from dgmark.rows.apart import check_apart


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts" / "deep" / "in.txt"
    path.parent.mkdir(parents=True)
    path.write_text("A text.")
    return path


def test_an_input_is_refused_under_every_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    symbolic, hard, folder = tmp_path / "symbolic", tmp_path / "hard", tmp_path / "folder"
    symbolic.symlink_to(source)
    hard.hardlink_to(source)
    folder.symlink_to(source.parent)
    monkeypatch.chdir(source.parent)
    names = [source, symbolic, hard, folder / "in.txt", Path("in.txt"), Path("../deep/in.txt")]
    for out in names:
        for read in names:
            with pytest.raises(SettingsError, match="which is read"):
                check_apart(out, ["elsewhere", str(read)])


def test_a_place_in_a_folder_that_is_read_is_refused(source: Path, tmp_path: Path) -> None:
    folder, hard = tmp_path / "texts", tmp_path / "hard"
    hard.hardlink_to(source)
    for out in (folder / "new.jsonl", source, folder / "new" / "new.jsonl", hard, folder):
        with pytest.raises(SettingsError, match="which is read"):
            check_apart(out, [str(folder)])


def test_standard_input_is_refused_under_its_names(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(source) as given:
        monkeypatch.setattr(sys, "stdin", given)
        with pytest.raises(SettingsError, match="same file as standard input"):
            check_apart(source, ["-"])
        with pytest.raises(SettingsError, match="which is read"):
            check_apart(source, [f"/dev/fd/{given.fileno()}"])
        check_apart(source.with_name("other"), ["-"])
    check_apart(source, ["-"])  # it is closed


def test_other_places_are_free(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "texts beside"
    other.mkdir()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    (other / "copy").write_text("A text.")
    for out in (None, other / "copy", tmp_path / "new.jsonl", tmp_path / "no" / "such" / "folder", loop):
        check_apart(out, [str(source), str(tmp_path / "texts"), "missing", None])
    read, written = os.pipe()
    check_apart(other / "copy", [f"/dev/fd/{read}"])
    os.close(read)
    os.close(written)
