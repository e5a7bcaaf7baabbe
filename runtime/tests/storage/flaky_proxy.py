"""An HTTP proxy in front of a server that fails as told: a real socket, a real reset, so that the client's own handling is tested."""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Fault:
    """What happens to one request."""

    forward: bool = False
    """Whether the server gets the request before it fails."""

    status: int | None = None
    """Answer with this status; None: reset the connection."""

    code: str = "InternalError"
    """S3 error code in the answer."""

    body: bytes | None = None
    """The whole answer, instead of an error document."""

    location: str | None = None
    """Address in a header of the answer, for redirects."""

    damage: bool = False
    """Forward, then change one byte of the answer's body."""

    silent: bool = False
    """Answer nothing until the client gives up."""

    cut_after: int | None = None
    """Forward, then end the connection after so many bytes of the answer's body."""


class FlakyProxy:
    """Forwards to ``host:port``; ``faults`` are used up one by one by the requests that ``matches`` picks."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = (host, port)
        self.conditional = threading.Lock()
        self.reset()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self) -> None:
        """Forget faults and requests."""
        self.faults: list[Fault] = []
        self.matches: Callable[[str, str], bool] = lambda _method, _path: True
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self.ignore_conditions = False

    def next_fault(self, method: str, path: str) -> Fault | None:
        """Count the request; the fault it meets."""
        with self.conditional:
            self.requests.append((method, path))
            if self.faults and self.matches(method, path):
                return self.faults.pop(0)
            return None

    def close(self) -> None:
        """Stop serving."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: FlakyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Keep quiet."""

    def _serve(self) -> None:
        proxy = self.owner
        fault = proxy.next_fault(self.command, self.path)
        proxy.headers.append(dict(self.headers.items()))
        body = self._body()
        if fault is not None and fault.cut_after is not None:
            self._answer(*self._forward(body), cut_after=fault.cut_after)
        elif fault is None or fault.damage:
            status, headers, answer = self._forward(body)
            self._answer(status, headers, bytes([answer[0] ^ 1]) + answer[1:] if fault else answer)
        else:
            self._fail(fault, body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815  # http.server's names

    def _fail(self, fault: Fault, body: bytes) -> None:
        if fault.forward:
            self._forward(body)
        if fault.silent:
            self.owner.released.wait(20)
            self.close_connection = True
        elif fault.status is not None:
            text = fault.body or f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>told so</Message></Error>".encode()
            headers = {"Content-Type": "application/xml"} | ({"Location": fault.location} if fault.location else {})
            self._answer(fault.status, headers, b"" if self.command == "HEAD" else text)
        else:
            self._reset()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        skipped = {"expect", "connection", "transfer-encoding", "content-length"}
        if self.owner.ignore_conditions:
            skipped.add("if-none-match")
            self.path = self.path.replace("ifGenerationMatch=0", "")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in skipped}
        headers["Content-Length"] = str(len(body))
        connection = http.client.HTTPConnection(*self.owner.target, timeout=30)
        try:
            if "If-None-Match" in self.headers:
                with self.owner.conditional:
                    return self._exchange(connection, body, headers)
            return self._exchange(connection, body, headers)
        finally:
            connection.close()

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        connection.request(self.command, self.path, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut_after: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                self.send_header(name, value)
        length = headers.get("Content-Length", headers.get("content-length")) if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut_after])
        self.close_connection = self.close_connection or cut_after is not None

    def _reset(self) -> None:
        # Zero linger: the client sees a reset, not an orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
