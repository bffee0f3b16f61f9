"""A browser without a window, and a page of it that reports every fault. Skips a test where there is no browser."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def running_browser() -> Iterator[Any]:
    """A browser."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def watched_page(browser: Any, address: str) -> Iterator[Any]:
    """A page whose requests go to this address only, and that reports no fault; `page.faults` may be cleared."""
    context = browser.new_context(accept_downloads=True, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    faults: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.asked, page.faults = asked, faults
    yield page
    context.close()
    assert not faults, faults
    assert all(url.startswith((address, "blob:")) for url in asked)


def check(page: Any, text: str) -> None:
    """Ask the page Check for a text, and wait for its answer."""
    page.fill("#text", text)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#submit[aria-disabled=false]")
