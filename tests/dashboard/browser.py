"""A real Chromium, driven as a person would; and a dashboard that it looks at. Both listen on loopback alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
START_S = 60.0


def chromium() -> tuple[str, str]:
    """Where browser and driver are; a test that finds one missing is skipped and says so."""
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if found[0] is None or found[1] is None:
        pytest.skip("needs Chromium and its driver (Debian: chromium, chromium-driver)")
    return found[0], found[1]


@contextmanager
def browsing(folder: Path) -> Iterator[Any]:
    """A browser with a profile of its own."""
    browser, driver = chromium()
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = browser
    for switch in (*SWITCHES, f"--user-data-dir={folder}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options=options, service=Service(driver)) as started:
        started.set_page_load_timeout(60)
        yield started


@contextmanager
def dashboard(*runs: Path, options: tuple[str, ...] = ()) -> Iterator[str]:
    """Serve run directories by the command itself, on a free port; give the address."""
    command = [sys.executable, "-m", "tocsin", "dashboard", *map(str, runs), "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ})
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("dashboard at http://"), line + (
            server.stdout.read() if server.poll() is not None else ""
        )
        yield line.split()[-1].rstrip("/")
    finally:
        server.terminate()
        server.wait(20)
        if server.stdout is not None:
            server.stdout.close()


def look(browser: Any, *, width: int, dark: bool) -> None:
    """Make the page so wide, and light or dark."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)


def shoot(browser: Any, path: Path, most: int = 2600) -> None:
    """Take a picture of the whole page, down to some length."""
    import base64

    height = min(int(browser.execute_script("return document.documentElement.scrollHeight")), most)
    width = int(browser.execute_script("return window.innerWidth"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    told = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(told["data"]))


def until(what: Any, seconds: float = 30.0) -> Any:
    """Wait until something is so, and give it; a page that is just going has nothing to say."""
    from selenium.common.exceptions import WebDriverException

    stop, why = time.monotonic() + seconds, None
    while True:
        try:
            if found := what():
                return found
        except WebDriverException as error:
            why = error
        if time.monotonic() >= stop:
            message = "it did not come about in time"
            raise AssertionError(message) from why
        time.sleep(0.1)


def follow(browser: Any, link: Any) -> None:
    """Click what leads to another page, and wait until that is there."""
    before = browser.find_element("css selector", "html").id
    link.click()

    def is_there() -> bool:
        is_new = browser.find_element("css selector", "html").id != before
        return is_new and bool(browser.execute_script("return document.readyState") == "complete")

    until(is_there)
