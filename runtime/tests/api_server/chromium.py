"""A headless Chromium, if the machine has one (Debian's package chromium-headless-shell), driven over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_ANSWER_S = 120.0


def program() -> str | None:
    """Path of the browser; None if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page; a context manager."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0
        self._rest = b""
        self.violations: list[str] = []
        """Errors on the page's console: uncaught exceptions, and what its Content-Security-Policy refused."""

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        arguments = [
            self._path, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}', *arguments],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._see(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def _see(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.violations.append(json.dumps(found["exceptionDetails"])[:500])
        elif event.get("method") == "Log.entryAdded" and found["entry"]["source"] in {"security", "javascript", "violation"}:
            self.violations.append(found["entry"]["text"])

    def open(self, url: str, *, width: int = 1180, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Page.navigate", url="about:blank")  # a fragment alone would not load the page again
        self.ask("Page.navigate", url=url)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 60.0) -> Any:
        """Wait until an expression is true and return its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(expression)):
            assert time.monotonic() < deadline, (
                f"{expression} did not become true; the page says: {self.run('document.body.innerText')[:2000]}"
            )
            time.sleep(0.1)
        return value

    def press(self, key: str) -> None:
        """Press and release a key, such as ``Tab`` or ``ArrowLeft``."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37}
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=codes[key], **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=codes[key])

    def screenshot(self, path: Path, *, height_max: int = 4000) -> None:
        """Write the page from its top, as high as it is, to a PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(height_max, size["height"]), "scale": 1}
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))
