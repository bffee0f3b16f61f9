import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dgmark import Detector, WatermarkKey
from support.cases import cases
from support.command_line import complaint, run
from support.known_keys import key_file_of, known_key
from support.marked_texts import marked_text
from support.unmarked_texts import PROSE

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


def test_one_report_of_many_texts_names_the_key_of_each_and_pays_for_all_keys(tmp_path: Path) -> None:
    keys, texts, signing = tmp_path / "keys", tmp_path / "texts", tmp_path / "signing.json"
    keys.mkdir()
    for name, owner in {"acme": "ACME", "third": None}.items():
        replace(known_key(f"{name} reports", rule="bigram"), name=owner).save(keys / f"{name}.json")
    acme = WatermarkKey.load(keys / "acme.json")
    texts.mkdir()
    marked, human = marked_text(acme, 250), (PROSE / "willows.txt").read_text()[:3000]
    for name, content in {"part": f"{human} {marked} {human[:500]}", "human": human, "scan": " "}.items():
        (texts / f"{name}.txt").write_text(content)
    run("report", "keygen", signing, code=0)
    jwks, page, document = tmp_path / "jwks.json", tmp_path / "all.html", tmp_path / "all.json"
    jwks.write_text(run("report", "jwks", signing).stdout)
    run("detect", "--keys", keys, texts, "--report", page, "--report", document, "--sign", signing, code=4)
    for report in (page, document):
        verified = run("report", "verify", report, "--jwks", jwks, code=0).stdout
        assert "Watermark found in 1 of 2 texts; 1 more has no answer" in verified
    fields = json.loads(document.read_text())
    assert [(key["name"], key["file"]) for key in fields["keys"]] == [("ACME", "acme.json"), (None, "third.json")]
    of_names = {Path(one["name"]).stem: one for one in fields["reports"]}
    part, (span,) = of_names["part"], Detector(acme, keys_tested=2).spans((texts / "part.txt").read_text())
    assert part["heading"].startswith("Watermark of ACME found in part")
    assert (part["method"]["keys_tested"], part["key_fingerprint"]) == (2, acme.fingerprint)
    assert [one["p_value"] for one in part["spans"]] == [span.p_value]
    assert span.p_value == 2 * Detector(acme).spans((texts / "part.txt").read_text())[0].p_value
    assert of_names["human"]["sentence"] == "No watermark of the 2 keys was found in this text."
    assert fields["unanswered"] == [f"{texts / 'scan.txt'}: holds no text"]
    shown = page.read_text()
    assert shown.count('<section class="found"') == 1
    assert "2 keys were tried, which all chances here pay for" in shown
    assert f"ACME, file acme.json, <code>{acme.fingerprint}</code>" in shown


def test_reports_are_joined_in_the_shell(tmp_path: Path, key: Path, text: Path) -> None:
    first, second, joined = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "joined.json"
    signing, other, jwks = tmp_path / "signing.json", tmp_path / "other.json", tmp_path / "jwks.json"
    for file in (signing, other):
        run("report", "keygen", file, code=0)
    jwks.write_text(run("report", "jwks", signing).stdout)
    run("detect", "--key", key, "--report", first, "--sign", signing, text, code=0)
    run("detect", "--key", key, "--report", second, "--sign", other, "--public", "-", stdin="Few words.", code=0)
    join = ["report", "join", first, second, "--out", joined]
    assert "not among the trusted ones" in run(*join, "--jwks", jwks, code=4).stderr
    assert not joined.exists()
    run(*join, "--sign", signing, "--name", "my class", code=0)
    assert "Watermark found in 1 of 2 texts (my class)" in run("report", "verify", joined, "--jwks", jwks).stdout
    assert "is the same file" in complaint(*join[:-1], first, code=2)


def test_unreadable_reports_and_keys(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text("no json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    deep = run("report", "verify", tmp_path / "jwks.json", "--jwks", tmp_path / "deep.json", code=4)
    assert "deep.json is not JSON" in deep.stderr
    assert run("report", "verify", tmp_path / "none.html", "--jwks", tmp_path / "jwks.json").exit_code == 4
    assert run("report", "verify", tmp_path / "jwks.json", "--jwks", tmp_path / "none.json").exit_code == 4
