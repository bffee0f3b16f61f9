"""The page in a browser: check, move the slider, drop a document, download the report; skipped where there is none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dgmark.report import SigningKey, verify_report
from dgmark.service.app import create_app
from dgmark.service.settings import ServiceSettings
from support.browsers import chromium, serious_faults, watched_page
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.services import key_folder, listening
from support.unmarked_texts import PROSE

pytestmark = pytest.mark.slow

PLAIN = (PROSE / "willows.txt").read_text()[:900]
MARKED = marked_text(known_key("one"), 150)
SIGNER = SigningKey.generate()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = key_folder(tmp_path_factory.mktemp("page"), "one", "two")
    app = create_app(ServiceSettings(keys=keys, workers=1, signer=SIGNER))
    with listening(app) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    with watched_page(browser, address) as page:
        page.goto(address)
        yield page


def check(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#submit[aria-disabled=false]")


def marked(page: Any) -> list[str]:
    script = "one => [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data).join('')"
    return [mark.evaluate(script) for mark in page.query_selector_all("#scored mark")]


def test_a_text_is_checked_and_its_passage_shown(page: Any) -> None:
    check(page, f"🦔 {PLAIN}{MARKED}{PLAIN}")
    assert page.inner_text("#heading") in ("Watermark found", "Watermark found in part")
    (span,) = marked(page)
    assert len(set(span.split()) & set(MARKED.split())) > 0.8 * len(set(MARKED.split()))
    assert page.evaluate("document.activeElement.id") == "verdict"
    assert page.inner_text("#facts").count("\n") >= 4


def test_the_slider_changes_the_verdict_without_a_request(page: Any) -> None:
    check(page, PLAIN[:420])
    before = len(page.asked)
    page.focus("#rate")
    seen = set()
    for key in ["Home", *["ArrowRight"] * 10]:
        page.keyboard.press(key)
        seen.add(page.inner_text("#heading"))
        assert page.inner_text("#rate-words") in page.get_attribute("#rate", "aria-valuetext")
    assert seen == {"No watermark found", "Inconclusive"}
    assert page.inner_text("#rate-words") == "1 in 1 trillion"
    assert len(page.asked) == before


def test_a_document_is_checked_and_its_report_is_signed(page: Any, tmp_path: Path) -> None:
    document = tmp_path / "essay.html"
    document.write_text(f"<html><body><p>{MARKED}</p></body></html>")
    page.set_input_files("#file", document)
    assert page.is_hidden("#text")
    page.click("#submit")
    page.wait_for_selector("#result:not([hidden])")
    assert page.inner_text("#heading") == "Watermark found"
    assert "essay.html" in page.inner_text("#about-text")
    for kind in ("html", "json"):
        with page.expect_download() as download:
            page.click(f"[data-format={kind}]")
        download.value.save_as(tmp_path / f"report.{kind}")
        verify_report((tmp_path / f"report.{kind}").read_bytes(), SIGNER.to_jwks())
    fields = json.loads((tmp_path / "report.json").read_bytes())
    assert (fields["name"], fields["verdict"]) == ("essay.html", "watermarked")


def test_a_text_that_is_a_page_stays_a_text(page: Any) -> None:
    hostile = f"<img src=x onerror=alert(1)><script>document.title='x'</script>{PLAIN}"
    check(page, hostile)
    assert page.text_content("#scored") == hostile
    assert page.query_selector("#scored img, #scored script") is None


def test_a_failure_is_never_a_verdict(page: Any, tmp_path: Path) -> None:
    check(page, MARKED)
    assert page.is_visible("#result")
    picture = tmp_path / "scan.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    page.set_input_files("#file", picture)
    page.click("#submit")
    page.wait_for_selector("#problem:not([hidden])")
    assert "is a picture" in page.inner_text("#problem")
    assert page.is_hidden("#result")
    page.click("#remove")
    check(page, "")
    assert "no text yet" in page.inner_text("#problem")
    page.faults.clear()  # the browser reports the answer 422


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_scrolls_in_one_direction_only(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    check(page, f"{MARKED} {'x' * 300}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_that_acts_has_a_name(page: Any) -> None:
    check(page, MARKED)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select, a")].filter(one =>
            !(one.innerText || one.ariaLabel || one.labels?.length || one.getAttribute("aria-labelledby"))).length"""
    )
    assert unnamed == 0
    headings = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(one => one.tagName)")
    assert headings[0] == "H1"
    assert headings.count("H1") == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 360)])
def test_axe_finds_no_serious_fault(page: Any, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    check(page, f"{PLAIN}{MARKED}")
    assert serious_faults(page) == []
    check(page, "")
    assert serious_faults(page) == []
    page.goto(f"{page.url}about")
    assert serious_faults(page) == []
