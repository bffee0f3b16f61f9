"""Draws docs/write.png, the page Write of `dgmark serve --demo` while a text grows; `make docs/write.png` runs it."""

import shutil
import subprocess
import sys
import time

from playwright.sync_api import FloatRect, sync_playwright

PORT, STEP = 8399, 75
ADDRESS = f"http://127.0.0.1:{PORT}"

server = subprocess.Popen([sys.executable, "-m", "dgmark", "serve", "--demo", "--port", str(PORT)])  # noqa: S603
time.sleep(5)
try:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1200})
        while not page.request.get(f"{ADDRESS}/readyz", fail_on_status_code=False).ok:
            time.sleep(1)
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
