"""An S3 service that counts the requests it gets, as AWS bills them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from urllib.parse import parse_qs

from runtime.tests.s3_server import App, S3Server, s3_server


class Requests:
    """Counts requests by PUT, COPY, POST, LIST, GET, HEAD and DELETE. A deletion of many objects in one request is a DELETE."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def counting(self, app: App) -> App:
        """Return an application that counts and passes on."""

        def counted(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            with self._lock:
                self._counts[_kind(environ)] += 1
            return app(environ, start_response)

        return counted

    def take(self) -> Counter[str]:
        """Return the requests since the last call."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
            return taken


def _kind(environ: dict[str, Any]) -> str:
    method = str(environ["REQUEST_METHOD"])
    query = parse_qs(str(environ.get("QUERY_STRING", "")), keep_blank_values=True)
    if method == "GET" and "list-type" in query:
        return "LIST"
    if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ:
        return "COPY"
    return "DELETE" if method == "POST" and "delete" in query else method


@contextmanager
def counted_s3() -> Iterator[tuple[S3Server, Requests]]:
    """Serve an empty bucket until the end of the block."""
    requests = Requests()
    with s3_server(requests.counting) as server:
        requests.take()
        yield server, requests
