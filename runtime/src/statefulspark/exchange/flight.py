"""The one home of Arrow Flight: authenticated JSON actions and Arrow exchanges between driver, slots and exchange tasks.

Every server refuses calls without the job's secret. Errors of our tree travel as JSON in Flight's ``extra_info`` and are raised
again as the same class on the caller's side, so callers never see Flight's own exceptions.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.flight as fl

from statefulspark import errors

_HEADER = "x-statefulspark-secret"
_END = b"end"
"""Begins the metadata of a sender's last message; the seconds it waited for room follow as text."""
_BY_NAME: dict[str, type[errors.StatefulSparkError]] = {
    cls.__name__: cls
    for cls in (
        errors.InvalidInputError,
        errors.NotRestorableError,
        errors.UnavailableError,
        errors.ConflictError,
        errors.FencedError,
        errors.ClosedError,
        errors.InternalError,
    )
}

Action = Callable[[dict[str, Any]], dict[str, Any]]


class ExchangeStream(Protocol):
    """What an exchange handler sees of one bidirectional stream.

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

    def output_schema(self, request: dict[str, Any]) -> pa.Schema:
        """Schema of the results of this request."""

    def exchange(self, request: dict[str, Any], stream: ExchangeStream) -> dict[str, Any]:
        """Run the request to its end; the returned mapping travels with the end mark."""


def error_body(error: BaseException) -> dict[str, Any]:
    """An error as JSON; anything that is not of our tree becomes an InternalError."""
    if isinstance(error, errors.UserFunctionError):
        return {
            "type": "UserFunctionError",
            "message": str(error),
            "uid": error.uid,
            "key_group": error.key_group,
            "user_traceback": error.user_traceback,
        }
    if isinstance(error, errors.CorruptDataError):
        return {"type": "CorruptDataError", "message": str(error), "path": error.path}
    if isinstance(error, errors.StatefulSparkError):
        return {"type": type(error).__name__, "message": str(error)}
    return {"type": "InternalError", "message": f"{type(error).__name__}: {error}"}


def error_of(body: Mapping[str, Any]) -> errors.StatefulSparkError | None:
    """The error that ``error_body`` described; None when it is not one of ours."""
    kind = body.get("type")
    if kind == "UserFunctionError":
        text = body["message"].split(" in uid ", 1)[0]
        return errors.UserFunctionError(text, uid=body["uid"], key_group=body["key_group"], user_traceback=body["user_traceback"])
    if kind == "CorruptDataError":
        return errors.CorruptDataError(body["message"].removeprefix(f"{body['path']}: "), path=body["path"])
    return _BY_NAME[kind](body["message"]) if kind in _BY_NAME else None


def encode_error(error: BaseException) -> fl.FlightServerError:
    """Wrap any error for the wire."""
    body = error_body(error)
    return fl.FlightServerError(body["message"][:2000], extra_info=json.dumps(body).encode())


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
                raise errors.UnavailableError("the exchange task went away in the middle of its rows") from error
            if chunk.app_metadata is not None and (end := chunk.app_metadata.to_pybytes()).startswith(_END):
                self.sender_waited_s = float(end[len(_END) :] or 0.0)
                return
            if chunk.data is not None and chunk.data.num_rows:
                yield chunk.data
        raise errors.UnavailableError("the exchange task went away before the end of its rows")

    def send(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise errors.UnavailableError("the exchange task went away while results were sent") from error

    def fail(self, error: Exception, *, begun: bool) -> None:
        """Tell the caller, who ends the stream, and pass over the rows that it has sent meanwhile.

        If this side ended the stream, gRPC would abort the caller's process when that happens while it writes.
        """
        try:
            if not begun:
                self._writer.begin(pa.schema([]))  # nothing can be written before
            self._writer.write_metadata(json.dumps({"error": error_body(error)}).encode())
            while not self._over:
                self._reader.read_chunk()
        except (StopIteration, fl.FlightError, pa.ArrowException, OSError):
            self._over = True


class FlightService(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow.flight ships no types
    """A Flight server with JSON actions and, if a handler is given, exchanges. Starts listening when constructed."""

    def __init__(self, location: str, secret: str, actions: Mapping[str, Action], handler: ExchangeHandler | None = None) -> None:
        super().__init__(location, middleware={"secret": _Secret(secret)})
        self._actions = dict(actions)
        self._handler = handler

    def do_action(self, _context: Any, action: Any) -> list[Any]:
        run = self._actions.get(action.type)
        if run is None:
            raise encode_error(errors.InvalidInputError(f"unknown action {action.type!r}"))
        try:
            body = run(json.loads(action.body.to_pybytes() or b"{}"))
        except Exception as error:
            raise encode_error(error) from error
        return [fl.Result(json.dumps(body).encode())]

    def do_exchange(self, _context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        if self._handler is None:
            raise encode_error(errors.InvalidInputError("this server takes no exchanges"))
        stream = _Stream(reader, writer)
        begun = False
        try:
            request = json.loads(descriptor.command)
            schema = self._handler.output_schema(request)
            writer.begin(schema)
            begun = True
            result = self._handler.exchange(request, stream)
            writer.write_metadata(json.dumps({"result": result}).encode())
        except Exception as error:  # noqa: BLE001  the caller must hear of every failure
            stream.fail(error, begun=begun)


class FlightPeer:
    """A client of one FlightService; safe to use from several threads."""

    def __init__(self, location: str, secret: str) -> None:
        self.location = location
        self._client = fl.FlightClient(location)
        self._headers = [(_HEADER.encode(), secret.encode())]

    def call(self, action: str, body: dict[str, Any], *, timeout_s: float = 30.0) -> dict[str, Any]:
        """Run one JSON action.

        Raises:
            UnavailableError: the peer did not answer in time.
            StatefulSparkError: what the peer raised.
        """
        options = fl.FlightCallOptions(timeout=timeout_s, headers=self._headers)
        try:
            results = list(self._client.do_action(fl.Action(action, json.dumps(body).encode()), options))
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise decode_error(error, f"{action} at {self.location}") from error
        answer: dict[str, Any] = json.loads(results[0].body.to_pybytes())
        return answer

    def open_exchange(self, request: dict[str, Any], schema: pa.Schema) -> ExchangeCall:
        """Start an exchange whose input has ``schema``."""
        options = fl.FlightCallOptions(headers=self._headers)
        try:
            writer, reader = self._client.do_exchange(fl.FlightDescriptor.for_command(json.dumps(request).encode()), options)
            writer.begin(schema)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise decode_error(error, f"exchange at {self.location}") from error
        return ExchangeCall(writer, reader, self.location)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class ExchangeCall:
    """The caller's side of one exchange: one thread sends, another receives. Whoever made it calls ``close`` in the end."""

    def __init__(self, writer: Any, reader: Any, location: str) -> None:
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
                    mark = json.loads(chunk.app_metadata.to_pybytes())
                    if "error" in mark:
                        raise error_of(mark["error"]) or errors.UnavailableError(f"slot at {self._location} failed in an unknown way")
                    return
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            raise decode_error(error, f"slot at {self._location}") from error
        raise errors.UnavailableError(f"slot at {self._location} ended without its end mark")

    def close(self, *, sending: bool = False) -> None:
        """Release the stream: in good order after the slot's end mark, otherwise by breaking it, upon which the slot undoes the batch.

        Args:
            sending: somebody may still be writing.
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
