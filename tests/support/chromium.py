"""Headless Chromium, controlled through its debugging pipe: pages are opened, clicked, photographed and audited."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs import built, need

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURES = Path(os.environ.get("PICTURES", CHECKOUT / "build" / "pictures"))
"""Folder for the pictures that tests take."""
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WAIT_S = 30
"""Seconds until a command has its result, or a page is loaded."""
READ_BYTES = 1 << 20
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
"""Rules of WCAG 2.2 A and AA, contrast included."""


def axe_core() -> Path:
    """Return the file of axe-core, fetched with npm. Skips the test if there is no npm."""
    install = [need("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    return built("axe", install, "node_modules") / "node_modules" / "axe-core" / "axe.min.js"


class Tab:
    """One page of one browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = 0
        target = self._run("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._run("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._run("Page.enable")

    def open(self, url: str) -> None:
        """Open a page, and wait until it is loaded."""
        before = self._loaded
        self._run("Page.navigate", url=url)
        self._until_loaded(before)

    def click(self, selector: str) -> None:
        """Click an element that leads to another page, and wait until that is loaded."""
        before = self._loaded
        self.value(f"document.querySelector({json.dumps(selector)}).click()")
        self._until_loaded(before)

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, or that of the promise that it returns."""
        result = self._run("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def audit(self) -> tuple[int, list[tuple[str, str]]]:
        """Return how many rules of WCAG the page follows, and those that it violates, each with an element."""
        self.value(f"{axe_core().read_text(encoding='utf-8')};0")
        result = json.loads(self.value(f"axe.run({{runOnly: {json.dumps(WCAG)}}}).then(JSON.stringify)"))
        violations = [(each["id"], each["nodes"][0]["html"]) for each in result["violations"]]
        return len(result["passes"]), violations

    def html(self) -> str:
        return str(self.value("document.documentElement.outerHTML"))

    def frames(self) -> list[str]:
        """Return the addresses of the frames in the page."""
        tree = self._run("Page.getFrameTree")["frameTree"]
        return [str(each["frame"].get("unreachableUrl", each["frame"]["url"])) for each in tree.get("childFrames", ())]

    def show(self, width: int, height: int, scheme: str) -> None:
        """Draw the page in a window of that size, with a colour scheme."""
        self._run(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._run("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path, width: int, height: int, scheme: str) -> None:
        """Write a PNG of the page."""
        self.show(width, height, scheme)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self._run("Page.captureScreenshot", format="png")["data"]))

    def _until_loaded(self, before: int) -> None:
        end = time.monotonic() + WAIT_S
        while self._loaded == before:
            self._receive(end)

    def _run(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + WAIT_S
        while True:
            received = self._receive(end)
            if received.get("id") == self._number:
                assert "error" not in received, received["error"]
                return dict(received["result"])

    def _receive(self, end: float) -> dict[str, Any]:
        """Return the next message. Raises TimeoutError."""
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._from], [], [], max(end - time.monotonic(), 0))
            if not readable:
                raise TimeoutError(f"the browser did not respond within {WAIT_S} s")
            data = os.read(self._from, READ_BYTES)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        self._loaded += received.get("method") == "Page.loadEventFired"
        return received


@contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """Start a browser for one page, or skip the test."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"there is none of {', '.join(BROWSERS)} on this machine")
    in_browser, to_browser = os.pipe()
    from_browser, out_browser = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    script = f'exec "$0" "$@" 3<&{in_browser} 4>&{out_browser}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", script, path, *options, f"--user-data-dir={profile}"],
        pass_fds=(in_browser, out_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for descriptor in (in_browser, out_browser):
        os.close(descriptor)
    try:
        yield Tab(to_browser, from_browser)
    finally:
        process.terminate()
        process.wait(WAIT_S)
        for descriptor in (to_browser, from_browser):
            os.close(descriptor)
