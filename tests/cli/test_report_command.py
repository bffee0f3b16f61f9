import json
import re
from pathlib import Path

import pytest

from support.cases import cases
from support.command_line import complaint, run
from support.known_keys import key_file_of, known_key
from support.marked_texts import marked_text

KEY = known_key("report command")
key = key_file_of(KEY)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(marked_text(KEY, 250))
    return tmp_path / "text.txt"


def test_signed_reports_verify_until_they_are_changed(tmp_path: Path, key: Path, text: Path) -> None:
    signing, jwks = tmp_path / "signing.json", tmp_path / "jwks.json"
    assert run("report", "keygen", signing, "--name", "ACME").exit_code == 0
    jwks.write_text(run("report", "jwks", signing).stdout)
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    reports = ("--report", page, "--report", document, "--sign", signing)
    run("detect", "--key", key, *reports, "--check", text, code=0)
    for report in (page, document):
        verified = run("report", "verify", report, "--jwks", jwks, code=0)
        assert "unchanged since ACME signed it with key" in verified.stdout
        assert re.search(r"made on 20\S+: Watermark found", verified.stdout)
        report.write_bytes(report.read_bytes().replace(b"watermarked", b"not_detected"))
        assert "unchanged" not in run("report", "verify", report, "--jwks", jwks, code=4).stdout


def test_report_without_signature(tmp_path: Path, key: Path, text: Path) -> None:
    document = tmp_path / "report.json"
    assert run("detect", "--key", key, "--report", document, "--public", text).exit_code == 0
    fields = json.loads(document.read_text())
    assert (fields["verdict"], fields["public"], fields["signature"]) == ("watermarked", True, "")
    assert "evidence" not in fields


@pytest.mark.parametrize(("options", "reason"), cases(__file__, "do_not_fit"))
def test_options_that_do_not_fit(key: Path, text: Path, options: str, reason: str) -> None:
    assert reason in complaint("detect", "--key", key, *options.replace("OTHER", __file__).split(), text, code=2)


def test_a_report_names_the_commitment_that_its_key_meets(tmp_path: Path, key: Path, text: Path) -> None:
    committed = run("key", "commit", key)
    assert "openssl ts -query" in committed.stderr
    commitment, other, document = tmp_path / "c.json", tmp_path / "other.json", tmp_path / "report.json"
    commitment.write_text(committed.stdout)
    known_key("another").save(other)
    assert "meets the commitment" in run("key", "verify", key, commitment).stdout
    detect = ["detect", text, "--commitment", commitment, "--report", document, "--report", tmp_path / "r.html"]
    for refused in (run("key", "verify", other, commitment), run(*detect, "--key", other)):
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert "does not meet this commitment" in refused.stderr
    assert not document.exists()
    assert run(*detect, "--key", key).exit_code == 0
    named = json.loads(document.read_text())["key_commitment"]
    assert named["sha256"] == json.loads(committed.stdout)["sha256"]
    page = (tmp_path / "r.html").read_text()
    assert named["sha256"] in page
    assert named["proves"] in page
    assert run(*detect, "--key", key, "--report", commitment).exit_code == 2
    assert commitment.read_text() == committed.stdout


def test_unreadable_reports_and_keys(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text("no json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    deep = run("report", "verify", tmp_path / "jwks.json", "--jwks", tmp_path / "deep.json", code=4)
    assert "deep.json is not JSON" in deep.stderr
    assert run("report", "verify", tmp_path / "none.html", "--jwks", tmp_path / "jwks.json").exit_code == 4
    assert run("report", "verify", tmp_path / "jwks.json", "--jwks", tmp_path / "none.json").exit_code == 4
