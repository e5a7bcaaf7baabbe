"""The one home of Arrow Flight: authenticated actions and Arrow exchanges between driver, slots and exchange tasks.

Every server refuses calls without the job's secret, over TCP already those without a certificate of the job. Errors of our tree travel as JSON in Flight's ``extra_info`` and are raised
again as the same class on the caller's side, so callers never see Flight's own exceptions.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.flight as fl

from statefulspark import errors
from statefulspark.config.kubernetes.pods import TLS_SERVER_NAME
from statefulspark.rpc.certificates import CertificateFolder, Certificates
from statefulspark.rpc.codec import Action, Answer, Request, answer_type, decode, encode
from statefulspark.rpc.error_codes import error_body, error_of
from statefulspark.rpc.messages.batches import ExchangeEnd, ExchangeRequest

_HEADER = "x-statefulspark-secret"
_UNIX = "grpc+unix:"
_TLS = "grpc+tls:"
_SOCKET_PATH_MAX = 107
"""Of ``sun_path``, which has 108 bytes and ends with a zero: unix(7)."""
ACTION_BYTES_MAX = 64 << 20
"""Largest body of an action. Callers are the job's own processes; what is longer is a mistake."""
_END = b"end"
"""Begins the metadata of a sender's last message; the seconds it waited for room follow as text."""


class ExchangeStream(Protocol):
    """An exchange handler's view of one bidirectional stream.

    Attributes:
        sender_waited_s: How long the sender waited for room (back-pressure); known at the end of its batches.
    """

    sender_waited_s: float

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Incoming batches; raises UnavailableError when the sender vanished before it said it was done."""

    def send(self, batch: pa.RecordBatch) -> None:
        """Send one batch of results."""


class ExchangeHandler(Protocol):
    """Serves exchanges of one server."""

    def output_schema(self, request: ExchangeRequest) -> pa.Schema:
        """Schema of the results of this request."""

    def exchange(self, request: ExchangeRequest, stream: ExchangeStream) -> None:
        """Run the request to its end."""


def encode_error(error: BaseException) -> fl.FlightServerError:
    """Wrap any error for the wire."""
    body = error_body(error)
    return fl.FlightServerError(str(error)[:2000], extra_info=json.dumps(body).encode())


def decode_error(error: Exception, where: str) -> errors.StatefulSparkError:
    """Turn what Flight raised on the caller's side into our tree; transport trouble becomes UnavailableError."""
    info = getattr(error, "extra_info", b"")
    if info:
        try:
            found = error_of(json.loads(bytes(info)))
        except ValueError:
            found = None
        if found is not None:
            return found
    return errors.UnavailableError(f"{where} did not answer ({type(error).__name__})")


def _of_our_tree(error: BaseException) -> errors.StatefulSparkError:
    """The error that the caller gets; a foreign one becomes `InternalError`."""
    return error_of(error_body(error)) or errors.InternalError(type(error).__name__)


class _Secret(fl.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow.flight ships no types
    def __init__(self, secret: str) -> None:
        super().__init__()
        self._secret = secret.encode()

    def start_call(self, _info: Any, headers: Mapping[str, list[str]]) -> None:
        given = headers.get(_HEADER, [""])[0]
        if not hmac.compare_digest(given.encode(), self._secret):
            raise fl.FlightUnauthenticatedError("the job's secret is missing or wrong")


class _Stream:
    """ExchangeStream over Flight. The sender's last message carries ``end`` metadata: without it the input is not complete."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.sender_waited_s = 0.0
        self._reader = reader
        self._writer = writer
        self._over = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                self._over = True
                break
            except (fl.FlightError, pa.ArrowException, OSError) as error:
                self._over = True
                raise errors.UnavailableError("the exchange task disconnected before it had sent all rows") from error
            if chunk.app_metadata is not None and (end := chunk.app_metadata.to_pybytes()).startswith(_END):
                self.sender_waited_s = float(end[len(_END) :] or 0.0)
                return
            if chunk.data is not None and chunk.data.num_rows:
                yield chunk.data
        raise errors.UnavailableError("the exchange task disconnected before the end marker of its rows")

    def send(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise errors.UnavailableError("the exchange task disconnected while results were being sent") from error

    def fail(self, error: Exception, *, begun: bool) -> None:
        """Tell the caller, who ends the stream, and pass over the rows that it has sent meanwhile.

        If this side ended the stream, gRPC would abort the caller's process when that happens while it writes.
        """
        try:
            if not begun:
                self._writer.begin(pa.schema([]))  # nothing can be written before
            self._writer.write_metadata(encode(ExchangeEnd(error=_of_our_tree(error))))
            while not self._over:
                self._reader.read_chunk()
        except (StopIteration, fl.FlightError, pa.ArrowException, OSError):
            self._over = True


class FlightService(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow.flight ships no types
    """A Flight server with actions and, if a handler is given, exchanges. Starts listening when constructed."""

    def __init__(
        self,
        location: str,
        secret: str,
        actions: Iterable[Action],
        handler: ExchangeHandler | None = None,
        *,
        certificates: Certificates | None = None,
    ) -> None:
        """Start listening.

        Raises:
            InvalidInputError: ``location`` is neither a Unix socket nor TLS with certificates, or the socket's path is too long.
            UnavailableError: The location cannot be bound, or the certificates are not usable.
        """
        try:
            super().__init__(location, middleware={"secret": _Secret(secret)}, **_server_options(location, certificates))
        except (pa.ArrowException, OSError) as error:
            raise errors.UnavailableError(f"{location} cannot be served ({type(error).__name__}): {str(error)[:200]}") from error
        self._actions = {action.name: action for action in actions}
        self._handler = handler

    def do_action(self, _context: Any, action: Any) -> list[Any]:
        served = self._actions.get(action.type)
        if served is None:
            raise encode_error(errors.InvalidInputError(f"unknown action {action.type!r}"))
        if action.body.size > ACTION_BYTES_MAX:
            raise encode_error(errors.InvalidInputError(f"{action.type} with {action.body.size} bytes is longer than {ACTION_BYTES_MAX}"))
        try:
            body = served.answer(action.body.to_pybytes())
        except Exception as error:
            raise encode_error(error) from error
        return [fl.Result(body)]

    def do_exchange(self, _context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        if self._handler is None:
            raise encode_error(errors.InvalidInputError("this server does not accept exchanges"))
        stream = _Stream(reader, writer)
        begun = False
        try:
            request = decode(descriptor.command, ExchangeRequest)
            schema = self._handler.output_schema(request)
            writer.begin(schema)
            begun = True
            self._handler.exchange(request, stream)
            writer.write_metadata(encode(ExchangeEnd()))
        except Exception as error:  # noqa: BLE001  the caller must hear of every failure
            stream.fail(error, begun=begun)


def _server_options(location: str, certificates: Certificates | None) -> dict[str, Any]:
    if location.startswith(_UNIX):
        path = location.removeprefix(_UNIX).removeprefix("//")
        if len(os.fsencode(path)) > _SOCKET_PATH_MAX:
            raise errors.InvalidInputError(
                f"the path of a socket takes {_SOCKET_PATH_MAX} bytes at most, and {path} is longer",
                field="TMPDIR",
                remedy="Set TMPDIR to a directory with a shorter path",
            )
        return {}
    if not location.startswith(_TLS) or certificates is None:
        raise errors.InvalidInputError(
            f"{location} would accept unencrypted connections from any client",
            field="location",
            remedy="Listen on grpc+unix, or grpc+tls with certificates",
        )
    return {
        "tls_certificates": [(certificates.certificate, certificates.key)],
        "verify_client": True,
        "root_certificates": certificates.authority,
    }


class FlightPeer:
    """A client of one FlightService; safe to use from several threads.

    Args:
        location: Where the service listens.
        secret: What it wants to see.
        certificates: Of this process; needed for ``grpc+tls`` and read again when they are renewed.
    """

    def __init__(self, location: str, secret: str, certificates: CertificateFolder | None = None) -> None:
        if location.startswith(_TLS) and certificates is None:
            raise errors.InvalidInputError(f"{location} needs certificates", field="certificates", remedy="Give the job's")
        self.location = location
        self._folder = certificates if location.startswith(_TLS) else None
        self._stamp = (0, 0)
        self._connecting = threading.Lock()
        self._client = self._connected()
        self._headers = [(_HEADER.encode(), secret.encode())]

    def call(self, request: Request[Answer], *, timeout_s: float = 30.0) -> Answer:
        """Send a request and return its answer.

        Raises:
            UnavailableError: the peer did not answer in time.
            StatefulSparkError: what the peer raised.
        """
        action = type(request).__name__
        options = fl.FlightCallOptions(timeout=timeout_s, headers=self._headers)
        try:
            results = list(self._current().do_action(fl.Action(action, encode(request)), options))
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise decode_error(error, f"{action} at {self.location}") from error
        return cast("Answer", decode(results[0].body.to_pybytes(), answer_type(type(request))))

    def open_exchange(self, request: ExchangeRequest, schema: pa.Schema) -> ExchangeCall:
        """Start an exchange whose input has ``schema``."""
        options = fl.FlightCallOptions(headers=self._headers)
        client = self._current()
        try:
            writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(encode(request)), options)
            writer.begin(schema)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise decode_error(error, f"exchange at {self.location}") from error
        return ExchangeCall(writer, reader, self.location, client)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _current(self) -> Any:
        """The client, a new one if the certificates are others now. Running exchanges keep the one they began with."""
        if self._folder is not None and self._folder.stamp() not in (self._stamp, (0, 0)):
            with self._connecting:
                if self._folder.stamp() != self._stamp:
                    self._client = self._connected()
        return self._client

    def _connected(self) -> Any:
        if self._folder is None:
            return fl.FlightClient(self.location)
        self._stamp = self._folder.stamp()
        found = self._folder.read()
        return fl.FlightClient(
            self.location,
            tls_root_certs=found.authority,
            cert_chain=found.certificate,
            private_key=found.key,
            override_hostname=TLS_SERVER_NAME,
        )


class ExchangeCall:
    """The caller's side of one exchange: one thread sends, another receives. Its creator calls ``close``."""

    def __init__(self, writer: Any, reader: Any, location: str, client: Any) -> None:
        self._client = client  # lives at least as long as its stream
        self._writer = writer
        self._reader = reader
        self._location = location
        self._answered = False
        self._waited_s = 0.0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows; blocks while the slot is busy (back-pressure)."""
        started = time.monotonic()
        self._writer.write_batch(batch)
        self._waited_s += time.monotonic() - started

    def end(self) -> None:
        """Say that the rows are complete; without it the slot undoes the batch."""
        self._writer.write_metadata(_END + f"{self._waited_s:.6f}".encode())
        self._writer.done_writing()

    def cancel(self) -> None:
        """Break the exchange; the slot undoes the batch."""
        self._reader.cancel()

    def results(self) -> Iterator[pa.RecordBatch]:
        """Receive results until the slot's end mark.

        The stream is not read to its end here, because gRPC aborts a process that reads the end of a stream and writes at once.

        Raises:
            UnavailableError: the slot went away; the caller's task fails and Spark retries it.
            StatefulSparkError: what the slot raised.
        """
        try:
            while True:
                try:
                    chunk = self._reader.read_chunk()
                except StopIteration:
                    break
                if chunk.data is not None and chunk.data.num_rows:
                    yield chunk.data
                if chunk.app_metadata is not None:
                    self._answered = True
                    end = decode(chunk.app_metadata.to_pybytes(), ExchangeEnd)
                    if end.error is not None:
                        raise end.error
                    return
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise decode_error(error, f"slot at {self._location}") from error
        raise errors.UnavailableError(f"slot at {self._location} closed the stream without an end marker")

    def close(self, *, sending: bool = False) -> None:
        """Release the stream: in good order after the slot's end mark, otherwise by breaking it, upon which the slot undoes the batch.

        Args:
            sending: another thread may still be writing.
        """
        if sending or not self._answered:
            self._reader.cancel()
            return
        try:
            self._writer.done_writing()  # a second time does nothing
            while True:
                self._reader.read_chunk()
        except (StopIteration, fl.FlightError, pa.ArrowException, OSError):
            return
