"""Takes the screenshots of the status page for the documentation, of a job with a past.

Run from the repository: ``python -m runtime.tests.api_server.page_screenshots docs/images``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from runtime.tests.api_server.chromium import Chromium, program
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.page_data import TRACEBACK, BusyJob, eventful, logged, stored

from statefulspark.api_server.api import create_app
from statefulspark.api_server.pages import stored_page
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.coordinator.controls import JobError, JobFailing
from statefulspark.errors import UnavailableError
from statefulspark.logs.tail import LogTail

VIEWS = (("desktop", 1180, False), ("desktop", 1180, True), ("tablet", 768, False), ("phone", 390, False), ("phone", 390, True))
HEIGHT = 1300
STATE_HEIGHT = 900
SHOWN = "document.body && document.querySelectorAll('figure svg').length >= 10 && document.querySelector('#events details') !== null"


def main(folder: Path) -> None:
    """Write ``page-<view>-<colors>.png``, and one picture of each state of a job that is in trouble."""
    path = program()
    if path is None:
        sys.exit("no Chromium: install Debian's package chromium-headless-shell")
    now_ms = int(time.time() * 1000)
    job = eventful(BusyJob(), now_ms=now_ms)
    tail = LogTail()
    logged(tail)
    app = create_app(job, token=TOKEN, clock_ms=lambda: now_ms, tail=tail)
    with ApiServer(app, ServerSettings()) as server, Chromium(path) as browser, tempfile.TemporaryDirectory() as temporary:
        for view, width, dark in VIEWS:
            browser.open(f"{server.url}/#token={TOKEN}", width=width, dark=dark)
            browser.wait(f"{SHOWN} && !document.getElementById('pipeline').innerText.includes('\\n0 rows/s')")
            browser.screenshot(folder / f"page-{view}-{'dark' if dark else 'light'}.png", height_max=HEIGHT)
        browser.open(f"{server.url}/#token={TOKEN}", width=768)
        job.change(failing=JobFailing(failures=3, since_ms=now_ms - 60_000, error=JobError(reason="UserFunction", message=TRACEBACK)))
        browser.wait(f"{SHOWN} && document.getElementById('headline').textContent.startsWith('failing')")
        browser.screenshot(folder / "page-failing.png", height_max=STATE_HEIGHT)
        job.change(failing=None)
        browser.wait("document.getElementById('headline').textContent.startsWith('keeping')")
        job.failures["status"] = UnavailableError("no answer")
        browser.wait("document.body.classList.contains('gone')")
        browser.screenshot(folder / "page-unreachable.png", height_max=STATE_HEIGHT)
        page = Path(temporary) / "page.html"
        page.write_text(stored_page(stored(job, tail, error=TRACEBACK)))
        browser.open(page.as_uri(), width=768)
        browser.wait(SHOWN)
        browser.screenshot(folder / "page-ended.png", height_max=STATE_HEIGHT)
        sys.exit("\n".join(browser.violations) or None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
