"""Takes the screenshots of the status page for the documentation, of a job with a past.

Run from the repository: ``python -m runtime.tests.api_server.page_screenshots docs/images``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from runtime.tests.api_server.chromium import Chromium, program
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.page_data import BusyJob, eventful, logged

from statefulspark.api_server.api import create_app
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.logs.tail import LogTail

WIDTHS = {"desktop": 1180, "phone": 390}


def main(folder: Path) -> None:
    """Write ``page-<view>-<colors>.png``."""
    path = program()
    if path is None:
        sys.exit("no Chromium: install Debian's package chromium-headless-shell")
    now_ms = int(time.time() * 1000)
    job = eventful(BusyJob(), now_ms=now_ms)
    tail = LogTail()
    logged(tail)
    with ApiServer(create_app(job, token=TOKEN, clock_ms=lambda: now_ms, tail=tail), ServerSettings()) as server, Chromium(path) as browser:
        for view, width in WIDTHS.items():
            for dark in (False, True):
                browser.open(f"{server.url}/#token={TOKEN}", width=width, dark=dark)
                browser.wait(
                    "document.querySelectorAll('figure svg').length >= 14 && document.querySelector('#events details') && document.getElementById('facts').innerText.startsWith('...') === false"
                )
                browser.run("[...document.querySelectorAll('#events details')].at(-1).open = true")
                browser.screenshot(folder / f"page-{view}-{'dark' if dark else 'light'}.png", height_max=6000)
        sys.exit("\n".join(browser.violations) or None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
