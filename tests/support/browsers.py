"""The system's Chromium, and pages in which nothing goes wrong unnoticed; skips where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser without a window."""
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
    context = browser.new_context(accept_downloads=True)
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


def serious_faults(page: Any) -> list[str]:
    """What axe-core calls serious or critical, with the element."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]
