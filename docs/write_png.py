"""Draws docs/write.png, the page Write of `dgmark serve --demo` while a text grows; `make docs/write.png` runs it."""

import shutil
import subprocess
import sys
import time

from playwright.sync_api import Error, FloatRect, Page, sync_playwright

PORT, STEP = 8399, 75
ADDRESS = f"http://127.0.0.1:{PORT}"


def ready(page: Page) -> bool:
    """Whether the service answers that its model is loaded."""
    try:
        return page.request.get(f"{ADDRESS}/readyz", fail_on_status_code=False).ok
    except Error:  # nothing listens yet
        return False


server = subprocess.Popen([sys.executable, "-m", "dgmark", "serve", "--demo", "--port", str(PORT)])  # noqa: S603
try:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1200})
        for _ in range(120):
            if ready(page):
                break
            time.sleep(1)
        else:
            sys.exit("the service was not ready within two minutes")
        page.goto(f"{ADDRESS}/write")
        page.click("#submit")
        page.wait_for_selector("#replay:not([hidden])", timeout=600_000)
        page.locator("#step").fill(str(STEP))
        pair, play = page.locator("#pair").bounding_box(), page.locator("#play").bounding_box()
        assert pair is not None
        assert play is not None
        height = play["y"] + play["height"] - pair["y"] + 20
        clip: FloatRect = {"x": pair["x"] - 20, "y": pair["y"] - 10, "width": pair["width"] + 40, "height": height}
        page.screenshot(path="docs/write.png", clip=clip, full_page=True)
        browser.close()
finally:
    server.terminate()
    server.wait()
