"""Listeners of a Flight service: a Unix socket for its own machine, mutual TLS for other machines. There is no third way.

gRPC reads a message as a whole before anybody can look at its headers, and takes messages of any size. So who may not call must not
get as far as sending one: the file system keeps other users from the socket, the TLS handshake keeps everybody without a certificate of the job away.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

import structlog

from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.rpc.certificates import RENEWAL_POLL_S, CertificateFolder, Certificates
from statefulspark.rpc.codec import Action
from statefulspark.rpc.flight import ExchangeHandler, FlightService
from statefulspark.storage.local.working_folder import open_socket_folder

_log = structlog.get_logger("statefulspark.flight")
_REBIND_S: Final = 10.0
_REBIND_PAUSE_S: Final = 0.005


class FlightListener:
    """A Flight service at one address for as long as its owner lives.

    Attributes:
        location: Where clients reach it.
    """

    def __init__(
        self,
        host: str | None,
        secret: str,
        actions: Iterable[Action],
        handler: ExchangeHandler | None = None,
        *,
        certificates: CertificateFolder | None = None,
        name: int | str = "driver",
    ) -> None:
        """Start serving.

        Args:
            host: Address to bind with mutual TLS; None: a Unix socket that only this user can open.
            secret: What callers show in every call.
            actions: What it answers.
            handler: Serves exchanges.
            certificates: Needed with ``host``.
            name: Whose socket it is.

        Raises:
            InvalidInputError: ``host`` is given without certificates.
            UnavailableError: The certificates cannot be read.
        """
        self._secret, self._actions, self._handler = secret, tuple(actions), handler
        self._folder = certificates if host is not None else None
        self._closed = threading.Event()
        self._renewing = threading.Lock()
        self._socket_folder = open_socket_folder(name) if host is None else None
        self._stamp = self._folder.stamp() if self._folder is not None else (0, 0)
        found = self._folder.read() if self._folder is not None else None
        if self._socket_folder is not None:
            self.location = f"grpc+unix://{self._socket_folder.path}/s"
            self._service = self._serve(self.location, None)
        else:
            self._service = self._serve(f"grpc+tls://{host}:0", found)
            self.location = f"grpc+tls://{host}:{self._service.port}"
        if self._folder is not None:
            threading.Thread(target=self._renew_when_told, name="flight-certificates", daemon=True).start()

    def renew(self) -> bool:
        """Go over to the certificates that are in the folder now; returns whether they are others and in use.

        gRPC takes certificates when a server starts, and only then. So another server starts on the same port as soon as the old one has let go of
        it, which is at once: the old one takes no more connections, and ends when its calls have. Clients connect again by themselves.
        """
        with self._renewing:
            if self._folder is None or self._closed.is_set() or (stamp := self._folder.stamp()) == self._stamp:
                return False
            try:
                certificates = self._folder.read()
                self._serve(self.location.rpartition(":")[0] + ":0", certificates).shutdown()  # proves that a server starts with them
            except StatefulSparkError as error:
                _log.warning("renewed certificates are invalid, keeping the previous ones", error=str(error)[:200])
                return False
            _end_later(self._service)
            self._service = self._serve_again(certificates)
            self._stamp = stamp
            _log.info("certificates renewed", location=self.location)
            return True

    def shutdown(self) -> None:
        """Take no more calls; waits for those that are running. Repeating it is fine."""
        with self._renewing:
            if self._closed.is_set():
                return
            self._closed.set()
            service = self._service
        service.shutdown()
        if self._socket_folder is not None:
            self._socket_folder.close()

    def _serve(self, location: str, certificates: Certificates | None) -> FlightService:
        return FlightService(location, self._secret, self._actions, self._handler, certificates=certificates)

    def _serve_again(self, certificates: Certificates) -> FlightService:
        deadline = time.monotonic() + _REBIND_S
        while True:
            try:
                return self._serve(self.location, certificates)
            except UnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_REBIND_PAUSE_S)

    def _renew_when_told(self) -> None:
        while not self._closed.wait(RENEWAL_POLL_S):
            self.renew()


def _end_later(service: FlightService) -> None:
    threading.Thread(target=service.shutdown, name="flight-drain", daemon=True).start()
