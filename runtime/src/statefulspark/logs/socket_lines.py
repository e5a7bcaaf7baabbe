"""The socket by which slots send their log records to the driver on the same machine: one datagram per record.

Standard error does not serve for that: what slots write there goes to the log of Spark's JVM, which started them.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from statefulspark.errors import InvalidInputError
from statefulspark.logs.forwarding import ForwardedRecords
from statefulspark.logs.json_lines import record_of

_DATAGRAM_MAX: Final = 1 << 18
"""More than Linux lets a sender send by default."""
_SEND_S: Final = 1.0
"""For how long a record waits for a driver that does not read."""
_PAUSE_S: Final = 10.0
"""For how long records go to standard error after the driver has not taken one."""
_POLL_S: Final = 0.5


class LineSender(logging.Handler):
    """Sends formatted records to a `LogReceiver`; to standard error while none takes them.

    Args:
        path: The receiver's socket.
        unsent: Keeps records that were written to standard error, for heartbeats.
    """

    def __init__(self, path: str, unsent: ForwardedRecords | None = None) -> None:
        super().__init__()
        self._unsent = unsent
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_SEND_S)
        self._retry_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. Blocks for at most a second."""
        try:
            line = self.format(record)
            if not self._send(line) and self._unsent is not None:
                self._unsent.add(record.levelno, line)
        except Exception:  # noqa: BLE001  a record that cannot be written must not fail a batch
            self.handleError(record)

    def _send(self, line: str) -> bool:
        """Return False if the record is on standard error."""
        if time.monotonic() >= self._retry_s:
            try:
                self._socket.sendto(line.encode(errors="replace"), self._path)
            except OSError:
                self._retry_s = time.monotonic() + _PAUSE_S
            else:
                return True
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
        return False

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()


class LogReceiver:
    """Gives the records that slots send to this process's handlers; a context manager.

    Args:
        folder: Where to make the socket: a folder that only this user can enter, with a path of at most 100 bytes.
        poll: Called about twice a second, by the receiver's thread.

    Attributes:
        path: The socket.

    Raises:
        InvalidInputError: The socket cannot be made, for example because the path is too long.
    """

    def __init__(self, folder: Path, poll: Callable[[], None] = lambda: None) -> None:
        self._poll = poll
        self.path = f"{folder}/s"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.bind(self.path)
        except OSError as error:
            self._socket.close()
            raise InvalidInputError(
                f"{self.path} cannot be a socket ({error})", field="TMPDIR", remedy="Set it to a folder with a shorter path"
            ) from error
        self._socket.settimeout(_POLL_S)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-receiver", daemon=True)

    def __enter__(self) -> Self:
        """Begin to receive."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Write what has arrived, and end."""
        self._closing.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._receive()
            self._poll()
        self._socket.settimeout(0.0)
        while self._receive():
            pass

    def _receive(self) -> bool:
        """Handle one record; False if there is none."""
        try:
            line = self._socket.recv(_DATAGRAM_MAX)
        except (TimeoutError, BlockingIOError):
            return False
        record = record_of(line.decode(errors="replace"))
        if record is not None:
            logging.getLogger(record.name).handle(record)
        return True
