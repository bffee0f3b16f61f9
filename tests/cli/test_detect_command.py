"""`dgmark detect` on many texts: resumed files, exit codes, options that cannot be combined."""

import csv
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases
from support.command_line import rows, run
from support.known_keys import key_file_of, known_key
from support.marked_texts import marked_text

key_file = key_file_of(known_key("batch"))
UNMARKED = " ".join(f"This is text number {n}, which says that {n} is a number." for n in range(149))


def test_a_batch_is_written_resumed_and_summed_up(key_file: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    texts = [{"id": f"row {n}", "text": f"This is text number {n}."} for n in range(149)]
    table.write_text("".join(json.dumps(row) + "\n" for row in [*texts, {"id": "row 149"}]))
    first = run("detect", "--key", key_file, "--out", out, table, code=4)
    assert "149 scored (149 uncertain), 1 cannot be used" in first.stderr
    assert first.stdout == ""
    whole = out.read_bytes()
    assert [row["id"] for row in rows(whole.decode())] == [f"row {n}" for n in range(150)]
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:70]) + b'{"id": "ro')
    again = run("detect", "--key", key_file, "--out", out, table)
    assert "of these, 70 there already" in again.stderr
    assert out.read_bytes() == whole
    assert run("detect", "--key", key_file, "--out", out, table).exit_code == 4
    assert run("detect", "--key", key_file, "--out", out, "--fpr", 0.5, table).exit_code == 4
    assert out.read_bytes() == whole


@pytest.mark.parametrize("options", cases(__file__, "not_combined"))
def test_options_that_cannot_be_combined_are_refused(key_file: Path, options: str) -> None:
    assert run("detect", "--key", key_file, *options.split(), stdin="A text.").exit_code == 2


@pytest.mark.parametrize("kind", ["table", "csv", "json", "jsonl"])
def test_a_lone_surrogate_in_an_id_can_be_shown(key_file: Path, kind: str) -> None:
    row = '{"id": "a\\ud800", "text": "A text."}\n'
    assert run("detect", "--key", key_file, "--format", kind, stdin=row + row).exit_code == 0


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_a_spreadsheet_computes_no_id(key_file: Path, start: str) -> None:
    given = json.dumps({"id": start + 'HYPERLINK("http://x")', "text": "A text."})
    (row,) = csv.DictReader(StringIO(run("detect", "--key", key_file, "--format", "csv", stdin=given).stdout))
    assert row["id"] == f'\'{start}HYPERLINK("http://x")'


subkeys_file = key_file_of(known_key("payload", subkeys=256))


@pytest.fixture(scope="module")
def payload_text() -> str:
    return marked_text(known_key("payload", subkeys=256).subkey(123), 100)


@pytest.mark.parametrize("output", ["table", "csv", "json", "jsonl"])
def test_the_payload_is_given_only_if_it_is_asked_for(subkeys_file: Path, payload_text: str, output: str) -> None:
    command = ("detect", "--key", subkeys_file, "--format", output, "--spans")
    hidden, shown = (run(*command, *flag, stdin=payload_text) for flag in ((), ("--payload",)))
    assert (hidden.exit_code, shown.exit_code) == (0, 0)
    for word in ("payload", "123", "confidence"):
        assert word not in hidden.stdout.replace("subkeys_tested", "")
    if output == "table":
        assert re.search("payload +123, with probability over 0.9999", shown.stdout)
        assert "(100% of the text), payload 123" in shown.stdout
        assert "256 sub-keys tried" in run(*command, "--verbose", stdin=payload_text).stdout
        return
    if output == "csv":
        found: dict[str, Any] = next(csv.DictReader(StringIO(shown.stdout)))
    else:
        found = json.loads(shown.stdout)[0] if output == "json" else json.loads(shown.stdout)
    assert (int(found["subkey"]), int(found["subkeys_tested"])) == (123, 256)
    assert float(found["subkey_confidence"]) > 0.9999
    spans = json.loads(found["spans"]) if output == "csv" else found["spans"]
    assert [span["subkey"] for span in spans] == [123]


def test_files_of_rows_hold_payloads_or_not_but_not_both(subkeys_file: Path, payload_text: str, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"id": "a", "text": payload_text}) + "\n")
    assert run("detect", "--key", subkeys_file, "--out", out, source).exit_code == 0
    assert "subkey" not in rows(out.read_text())[0]
    mixed = run("detect", "--key", subkeys_file, "--out", out, "--payload", source)
    assert "differs in settings" in mixed.stderr
    out.unlink()
    assert run("detect", "--key", subkeys_file, "--out", out, "--payload", source).exit_code == 0
    assert rows(out.read_text())[0]["subkey"] == 123


def test_without_a_mark_or_sub_keys_there_is_no_payload(key_file: Path, subkeys_file: Path) -> None:
    shown = run("detect", "--key", subkeys_file, "--payload", stdin=UNMARKED)
    assert re.search("payload +none, as no watermark was found", shown.stdout)
    assert "no key here has sub-keys" in run("detect", "--key", key_file, "--payload", stdin="A text.", code=2).stderr
