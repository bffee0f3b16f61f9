"""`dgmark detect` on documents: verdicts, folders, columns of tables, and the text that was scored."""

import csv
import errno
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dgmark import read_document
from dgmark.rows.sources import read_texts
from dgmark.rows.tables import RowReading
from support.command_line import rows, run
from support.documents import CORPUS, corpus_key, source_of
from support.known_keys import key_file_of

# with something left out, read whole, and read whole in a guessed character set
NAMES = ("pages.pdf", "story.docx", "latin.txt")
key_file = key_file_of(corpus_key())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two documents that can be read, one that cannot, two that are none by their endings, and a key."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("pages.pdf", "story.docx", "locked.pdf", "picture.png"):
        shutil.copy(CORPUS / name, folder)
    (folder / "~$story.docx").write_bytes(b"open")
    corpus_key().save(folder / "key.json")
    return folder


def test_a_verdict_speaks_of_the_part_that_was_read(key_file: Path, tmp_path: Path) -> None:
    reports = [tmp_path / "r.html", tmp_path / "r.json"]
    wanted = [option for report in reports for option in ("--report", report)]
    found = run("detect", "--key", key_file, *wanted, "--check", CORPUS / "pages.pdf")
    note = "4 lines that repeat at the head and foot of pages are left out"
    assert (found.exit_code, f"pages.pdf: {note}" in found.stderr) == (0, True)
    page, fields = reports[0].read_text(), json.loads(reports[1].read_text())
    assert note in page
    assert "Watermark found, in the part that was read</h1>" in page
    assert fields["notes"] == [note]
    assert "was found in the part of this text that was read. " in fields["sentence"]
    several = rows(run("detect", "--key", key_file, "--format", "jsonl", *map(CORPUS.joinpath, NAMES)).stdout)
    assert ["found in the part of this text that was read" in row["summary"] for row in several] == [True, False, False]
    assert [(row["kind"], row["notes"]) for row in several[:2]] == [("PDF", [note]), ("Word document", [])]
    table = run("detect", "--key", key_file, *map(CORPUS.joinpath, NAMES)).stdout
    assert table.count("found, in the part") == 1


def test_cells_state_the_kind_and_the_notes(key_file: Path) -> None:
    table = run("detect", "--key", key_file, "--format", "csv", CORPUS / "story.docx").stdout
    (cells,) = csv.DictReader(io.StringIO(table))
    assert (cells["kind"], cells["notes"]) == ("Word document", "[]")


@pytest.mark.parametrize("name", ["picture.png", "scan.pdf", "locked.docx", "locked.pdf"])
@pytest.mark.parametrize("by_name", [True, False])
def test_what_cannot_be_read_has_no_verdict(name: str, by_name: bool, key_file: Path) -> None:
    content = None if by_name else (CORPUS / name).read_bytes()
    refused = run("detect", "--key", key_file, CORPUS / name if by_name else "-", stdin=content, code=4)
    assert "not_detected" not in refused.stdout + refused.stderr
    assert "is a picture" in refused.stderr or "pictures" in refused.stderr or "is encrypted" in refused.stderr


def test_standard_input_may_be_a_document(key_file: Path) -> None:
    for name in ("story.odt", "story.docx", "latin.txt"):
        found = run("detect", "--key", key_file, "--check", "-", stdin=(CORPUS / name).read_bytes(), code=0)
        assert "was found in" in found.stdout


def test_a_folder_is_read_and_the_rest_is_named(key_file: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    (folder / "notes.txt").write_bytes((folder / "key.json").read_bytes())  # a key by what it holds
    (folder / "commitment.json").write_text(run("key", "commit", folder / "key.json", code=0).stdout)
    run("report", "keygen", folder / "signing.json", code=0)
    for options in (["--format", "jsonl"], ["--out", out]):
        found = run("detect", "--key", key_file, *options, folder, code=4)
        assert (
            f"error: 1 of 3 inputs cannot be used; the first is {folder / 'locked.pdf'}: is encrypted" in found.stderr
        )
        written = rows(out.read_text() if out in options else found.stdout)
        names = [Path(row["id"]).name for row in written]
        assert names == ["locked.pdf", "pages.pdf", "story.docx"]
        assert [row.get("verdict") for row in written] == [None, "watermarked", "watermarked"]
        assert written[0]["error"] == "is encrypted with a password: save it without one"
        assert "not read, as their endings are those of no document, or they hold keys: " in found.stderr
        for name in ("picture.png", "~$story.docx", "key.json", "notes.txt", "commitment.json", "signing.json"):
            assert name in found.stderr


@pytest.mark.parametrize("content", ['{"secret": "the sea", "d": "d"}', 'A key has "format": "dgmark-key" in it.'])
def test_a_document_that_speaks_of_keys_is_a_document(key_file: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / f"a.{'json' if content.startswith('{') else 'txt'}").write_text(content)
    assert "is inconclusive" in run("detect", "--key", key_file, tmp_path / "texts", code=0).stdout


def test_a_key_among_the_files_of_a_pattern_is_left_out(key_file: Path, folder: Path) -> None:
    found = run("detect", "--key", key_file, "--json", folder / "key.json", folder / "story.docx", code=0)
    assert [row["verdict"] for row in rows(found.stdout)] == ["watermarked"]
    assert f"or they hold keys: {folder / 'key.json'}\n" in found.stderr
    alone = run("detect", "--key", key_file, folder / "key.json", code=4)
    assert "error: there is no text to score" in alone.stderr


@pytest.mark.parametrize("options", [[], ["--check"], ["--json"], ["--format", "csv"], ["--format", "json"]])
def test_one_input_that_cannot_be_tested_decides_the_exit_code_in_every_form(
    key_file: Path, folder: Path, tmp_path: Path, options: list[str]
) -> None:
    table = tmp_path / "rows.jsonl"
    table.write_text('{"id": "a", "text": "A text."}\n{"id": "b", "text": null}\n')
    for inputs, count in ((folder, "1 of 3"), (table, "1 of 2")):
        found = run("detect", "--key", key_file, *options, inputs, code=4)
        assert f"error: {count} inputs cannot be used; the first is " in found.stderr
        assert any(verdict in found.stdout for verdict in ("watermarked", "found", "uncertain", "inconclusive"))


def test_what_cannot_be_read_of_a_folder_is_a_row(
    key_file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    (folder / "linked").symlink_to(CORPUS)
    (folder / "notes.doc").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
    os.mkfifo(folder / "pipe.txt")
    (folder / "shut").mkdir()
    listed = os.scandir

    def scandir(path: str) -> Any:
        if Path(path).name == "shut":  # permissions do not hold for root
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = run("detect", "--key", key_file, "--format", "jsonl", folder)
    errors = {Path(row["id"]).name: row["error"] for row in rows(found.stdout) if "error" in row}
    assert {name: error.split(":")[0] for name, error in errors.items()} == {
        "gone.txt": "cannot be read",
        "linked": "is a link to a folder, and links are not followed",
        "locked.pdf": "is encrypted with a password",
        "notes.doc": "is an Office file of the form before 2007 (.doc, .xls, .ppt), or is encrypted with a password",
        "pipe.txt": "is a pipe or a device, not a file",
        "shut": "cannot be read",
    }
    assert "6 of 8 inputs cannot be used" in found.stderr
    assert run("detect", "--key", key_file, "--check", folder).exit_code == 4


def test_the_text_that_was_scored_is_written(key_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "text.txt"
    found = run("detect", "--key", key_file, "--extract", out, "--format", "jsonl", CORPUS / "pages.pdf", code=0)
    assert out.read_text(encoding="utf-8") == source_of("pages.pdf")
    document = read_document(CORPUS / "pages.pdf")
    assert hashlib.sha256(out.read_bytes()).hexdigest() == document.sha256
    again = run("detect", "--key", key_file, "--format", "jsonl", out)
    same = ("verdict", "p_value", "num_tokens_scored")
    assert [rows(again.stdout)[0][name] for name in same] == [rows(found.stdout)[0][name] for name in same]


def test_extract_takes_one_text(key_file: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "text.txt"
    command = ("detect", "--key", key_file, "--extract", out)
    assert "--extract takes one text" in run(*command, folder).stderr
    assert "--extract" in run(*command, "--out", tmp_path / "o.jsonl", CORPUS / "story.txt", code=2).stderr
    (tmp_path / "ids.jsonl").write_text('{"token_ids": [5, 6, 7]}')
    assert "token ids were" in run(*command, tmp_path / "ids.jsonl", code=2).stderr
    run(*command, CORPUS / "scan.pdf", code=4)
    assert not out.exists()


def tables(folder: Path) -> list[Path]:
    """The same two texts in the column "story" of a table of each kind."""
    texts = [{"id": "a", "story": "First text; with a sign."}, {"id": "b", "story": 'Second, "quoted",\nin lines.'}]
    for name, delimiter in (("t.csv", ","), ("semicolons.csv", ";"), ("t.tsv", "\t")):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["id", "story"], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(texts)
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    return [folder / name for name in ("t.csv", "semicolons.csv", "t.tsv", "t.jsonl")]


def test_a_named_column_is_read_from_every_kind_of_table(tmp_path: Path) -> None:
    for path in tables(tmp_path):
        items = list(read_texts(str(path), RowReading(text_column="story")))
        assert [item.content for item in items] == [
            "First text; with a sign.",
            'Second, "quoted",\nin lines.',
        ]
        assert [item.row_id for item in items] == ["a", "b"]


def test_a_missing_column_is_an_error_that_names_what_there_is(key_file: Path, tmp_path: Path) -> None:
    for path in tables(tmp_path):
        assert '"text"' in run("detect", "--key", key_file, path, code=4).stderr
    workbook = run("detect", "--key", key_file, "--text-column", "story", CORPUS / "table.xlsx")
    assert (
        'has no column "story" (its first row names: id, text, note): name one of these with --text-column'
        in workbook.stderr
    )


def test_empty_cells_are_bad_rows_and_empty_rows_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,note\nfirst,x\n,y\n,\nlast,\n")
    items = list(read_texts(str(path)))
    expected = [(f"{path}:2", False), (f"{path}:3", True), (f"{path}:5", False)]
    assert [(item.row_id, item.error is not None) for item in items] == expected
