"""The output folder of a run on a cluster, without a cluster."""

from pathlib import Path

import pytest

from dgmark.errors import ResumeMismatch

pytest.importorskip("ray")
from dgmark.scale.folder import Folder

RUN = {"command": "detect", "settings": "a"}


def take(folder: Path, run: dict[str, str]) -> None:
    with Folder(str(folder), run).taken():
        pass


@pytest.mark.parametrize("content", ['{"name": "my run"}', "my notes", "[1]", "\n", "\udcff"])
def test_a_run_json_of_another_program_is_kept(tmp_path: Path, content: str) -> None:
    held = tmp_path / "run.json"
    held.write_text(content, errors="surrogateescape")
    with pytest.raises(ResumeMismatch, match=r"run\.json is no file of dgmark"):
        take(tmp_path, RUN)
    assert held.read_text(errors="surrogateescape") == content
    assert [*tmp_path.iterdir()] == [held]


def test_a_run_without_rows_gives_way(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    take(folder, RUN)
    first = (folder / "run.json").read_text()
    take(folder, {**RUN, "settings": "b"})
    assert (folder / "run.json").read_text() == first.replace('"a"', '"b"')


def test_a_run_that_ended_before_it_wrote_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "run.json").touch()
    take(tmp_path, RUN)
    assert '"settings": "a"' in (tmp_path / "run.json").read_text()


def test_rows_of_another_run_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    take(folder, RUN)
    rows = folder / "rows" / "kind=done" / "part.parquet"
    rows.parent.mkdir(parents=True)
    rows.touch()
    with pytest.raises(ResumeMismatch, match="differs in settings"):
        take(folder, {**RUN, "settings": "b"})
    assert '"settings": "a"' in (folder / "run.json").read_text()


def test_a_folder_of_an_object_store() -> None:
    folder = Folder("mock:///out", RUN)  # pyarrow's file system in memory, which has no locks either
    for _ in range(2):
        with folder.taken():
            assert folder.rows() is None
