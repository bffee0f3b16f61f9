"""A key of a rule of the lab does what any key does: made, marked with, detected, served, and reported on."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dgmark import WatermarkKey
from dgmark.report.signing import SigningKey, verify_report
from dgmark_service.app import create_app
from dgmark_service.settings import ServiceSettings
from support.browser import check, running_browser, watched_page
from support.command_line import rows, run
from support.services import listening, wait_for
from support.unmarked_texts import PROSE

pytestmark = pytest.mark.slow

PLAIN = (PROSE / "willows.txt").read_text()[:900]


@dataclass
class Written:
    """A key that `keygen` made, and a text that `generate` marked with it."""

    title: str
    key_file: Path
    text: str

    @property
    def key(self) -> WatermarkKey:
        return WatermarkKey.load(self.key_file)


@pytest.fixture(scope="module", params=[("kgw", "KGW", ()), ("tango", "TANGO", ("--colours", "hash"))])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The secret is fixed, so that each run writes the same text."""
    rule, title, options = request.param
    folder = tmp_path_factory.mktemp(rule)
    (folder / "keys").mkdir()
    key_file = folder / "keys" / "key.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda size: bytes(range(size)))
        made = run("keygen", "--rule", rule, "--delta", 5, *options, key_file)
    assert made.exit_code == 0, made.stderr
    assert f"dgmark generate --key {key_file} 'Once upon a time'" in made.stderr
    settings = ("--length", 128, "--temperature", 1.2, "--cache", "dual")
    done = run("generate", "--key", key_file, "--prompt", "Once upon a time", *settings, code=0)
    return Written(title, key_file, done.stdout)


def test_detect_finds_the_text_and_names_the_rule(written: Written, tmp_path: Path) -> None:
    for name, text in (("marked", written.text), ("plain", PLAIN)):
        (tmp_path / f"{name}.txt").write_text(text)
    found = run("detect", "--key", written.key_file, "--format", "jsonl", tmp_path)
    verdicts = {Path(row["id"]).stem: row for row in rows(found.stdout)}
    assert {name: row["verdict"] for name, row in verdicts.items()} == {
        "marked": "watermarked",
        "plain": "not_detected",
    }
    for row in verdicts.values():
        assert (row["rule"], row["key_fingerprint"]) == (written.key.spec.rule, written.key.fingerprint)
        assert 0 <= row["figures"]["p_published"] <= 1
    assert verdicts["marked"]["p_value"] <= 1e-4 < verdicts["plain"]["p_value"]
    card = run("detect", "--key", written.key_file, tmp_path / "marked.txt").stdout
    assert f"The {written.title} watermark of key {written.key.fingerprint} was found" in card


def test_a_signed_report_names_the_rule(written: Written, tmp_path: Path) -> None:
    signer, report, text = tmp_path / "signing.json", tmp_path / "report.json", tmp_path / "text.txt"
    text.write_text(written.text)
    assert run("report", "keygen", signer).exit_code == 0
    run("detect", "--key", written.key_file, "--report", report, "--sign", signer, text, code=0)
    content = report.read_bytes()
    signing = SigningKey.load(signer)
    assert verify_report(content, signing.to_jwks()) == signing.key_id
    fields: dict[str, Any] = json.loads(content)
    assert fields["verdict"] == "watermarked"
    assert written.title in fields["sentence"]


def test_a_page_of_the_service_finds_the_text(written: Written) -> None:
    app = create_app(ServiceSettings(written.key_file.parent, workers=1))
    with listening(app) as address, running_browser() as browser, watched_page(browser, address) as page:
        wait_for(lambda: app.state.service.ready)
        page.goto(address)
        check(page, written.text)
        assert page.inner_text("#heading") == "Watermark found"
        assert f"The {written.title} watermark" in page.inner_text("#sentence")
        check(page, PLAIN)
        assert page.inner_text("#heading") == "No watermark found"
