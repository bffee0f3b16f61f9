"""Files and folders written whole or not at all, through links, with the permissions that a file has."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dgmark.errors import InputError
from dgmark.rows.whole_files import replacing_file, replacing_folder, write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    write_whole(path, "one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_the_file_that_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path, exists: bool) -> None:
    path, link = tmp_path / "folder" / "file", tmp_path / "link"
    path.parent.mkdir()
    if exists:
        path.write_text("old")
    link.symlink_to(Path("folder") / "file")
    write_whole(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert not path.is_symlink()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "link"]


def test_the_folder_that_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    (folder / "old").touch()
    link.symlink_to(folder)
    with replacing_folder(link) as beside:
        (beside / "new").touch()
    assert link.is_symlink()
    assert [entry.name for entry in folder.iterdir()] == ["new"]


def test_a_replaced_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    write_whole(path, "new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"), replacing_file(path) as temporary:
        half(temporary)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_without_room_is_an_error_of_input_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    code = (
        "import sys; from pathlib import Path; from dgmark.errors import InputError;"
        "from dgmark.rows.whole_files import write_whole\n"
        "try: write_whole(Path(sys.argv[1]), 'x' * 1000)\n"
        "except InputError as error: print(error)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{path} cannot be written: File too large; make room, or choose another place\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("taken", ["/dev/full", "."])
def test_what_is_no_file_is_not_replaced(taken: str) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(Path(taken), "x")
    assert Path("/dev/full").is_char_device()
