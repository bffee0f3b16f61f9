"""Outputs: no place that is read, and files and folders written whole or not at all, through links."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dgmark.errors import InputError, SettingsError
from dgmark.files.outputs import atomic_file, atomic_folder, atomic_write, check_output
from dgmark.rows.jsonl import to_line


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
    names = [source, symbolic, hard, folder / "in.txt", Path("in.txt")]
    for out in names:
        for read in names:
            with pytest.raises(SettingsError, match="which is read"):
                check_output(out, ["elsewhere", str(read)])


def test_a_place_in_a_folder_that_is_read_is_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    for out in (folder / "new.jsonl", source, folder / "new" / "new.jsonl", folder):
        with pytest.raises(SettingsError, match="which is read"):
            check_output(out, [str(folder)])


def test_standard_input_is_refused_under_its_names(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(source) as given:
        monkeypatch.setattr(sys, "stdin", given)
        with pytest.raises(SettingsError, match="same file as standard input"):
            check_output(source, ["-"])
        with pytest.raises(SettingsError, match="which is read"):
            check_output(source, [f"/dev/fd/{given.fileno()}"])
        check_output(source.with_name("other"), ["-"])
    check_output(source, ["-"])  # it is closed


def test_other_places_are_free(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "texts beside"
    other.mkdir()
    (other / "copy").write_text("A text.")
    for out in (None, other / "copy", tmp_path / "new.jsonl", tmp_path / "no" / "such" / "folder"):
        check_output(out, [str(source), str(tmp_path / "texts"), "missing", None])
    assert (other / "copy").read_text() == "A text."
    assert not (tmp_path / "new.jsonl").exists()


# --- atomic writes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_the_file_that_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path, exists: bool) -> None:
    path, link, folder_link = tmp_path / "folder" / "file", tmp_path / "link", tmp_path / "folder link"
    if exists:
        atomic_write(path, b"old")
        path.chmod(0o640)
    link.symlink_to(Path("folder") / "file")
    atomic_write(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert not exists or path.stat().st_mode & 0o777 == 0o640
    folder_link.symlink_to("folder")
    with atomic_folder(folder_link) as beside:
        (beside / "another").touch()
    assert [entry.name for entry in path.parent.iterdir()] == ["another"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "folder link", "link"]


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"), atomic_file(path) as temporary:
        half(temporary)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_without_room_is_an_error_of_input_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    code = (
        "import sys; from pathlib import Path; from dgmark.errors import InputError;"
        "from dgmark.files.outputs import atomic_write\n"
        "try: atomic_write(Path(sys.argv[1]), 'x' * 1000)\n"
        "except InputError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-B", "-c", code, str(path)],  # -B: the limit would cut bytecode, too
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{path} cannot be written: File too large; make room, or choose another place\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_rows_that_speak_of_a_secret_are_no_key(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = ({"id": name, "text": 'A "secret": nobody knew it.', "d": 4} for name in ("secret", "d"))
    path.write_text("".join(to_line(row) + "\n" for row in rows))
    check_output(path, [])
    atomic_write(path, "other rows")
    assert path.read_text() == "other rows"


def test_a_key_in_utf_16_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text('{"secret": ""}', encoding="utf-16")
    with pytest.raises(SettingsError, match="never overwritten"):
        atomic_write(path, "rows")


def test_a_folder_that_holds_a_key_is_not_replaced(tmp_path: Path) -> None:
    key = tmp_path / "model" / "deep" / "key.json"
    key.parent.mkdir(parents=True)
    key.write_text('{"secret": ""}')
    with pytest.raises(SettingsError, match="never overwritten"), atomic_folder(tmp_path / "model"):
        pass
    assert key.read_text() == '{"secret": ""}'
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("taken", ["/dev/full", "."])
def test_what_is_no_file_is_not_replaced(taken: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        atomic_write(Path(taken), "x")
    assert Path("/dev/full").is_char_device()
