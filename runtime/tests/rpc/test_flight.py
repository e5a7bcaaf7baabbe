"""The job's Arrow Flight: nobody without the secret, errors keep their class, and input counts only when it is complete."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from statefulspark import errors
from statefulspark.errors import (
    ClosedError,
    ConflictError,
    CorruptDataError,
    FencedError,
    IncompatibleFormatError,
    InternalError,
    InvalidInputError,
    NotRestorableError,
    StatefulSparkError,
    UnavailableError,
    UserFunctionError,
)
from statefulspark.rpc.error_codes import _CODES, error_body, error_of
from statefulspark.rpc.flight import ExchangeStream, FlightPeer, FlightService
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import ExchangeRequest
from statefulspark.rpc.messages.slot_control import Ping

from .echo import Echo, Echoed, echo, exchange_of

SCHEMA = pa.schema([("n", pa.int64())])


class Doubler:
    """Doubles numbers; remembers how its input ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def output_schema(self, request: ExchangeRequest) -> pa.Schema:
        return SCHEMA

    def exchange(self, request: ExchangeRequest, stream: ExchangeStream) -> None:
        if request.uid == "fails":
            raise UserFunctionError("process_element raised ValueError", uid="u", key_group=3, user_traceback="ValueError: no")
        try:
            batches = list(stream.batches())
        except UnavailableError:
            self.ended.append("broken")
            raise
        self.ended.append("complete")
        for batch in batches:
            stream.send(pa.RecordBatch.from_arrays([pa.array([2 * n for n in batch.column(0).to_pylist()])], schema=SCHEMA))


@pytest.fixture
def doubler() -> Doubler:
    return Doubler()


@pytest.fixture
def service(doubler: Doubler) -> Iterator[FlightListener]:
    def fail(request: Ping) -> None:
        raise FencedError(f"epoch {request.epoch} is over")

    server = FlightListener(None, "s3cret", [Echo.served_by(echo), Ping.served_by(fail)], doubler)
    yield server
    server.shutdown()


def peer_of(service: FlightListener, secret: str = "s3cret") -> FlightPeer:
    return FlightPeer(service.location, secret)


def numbers(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


@pytest.mark.parametrize("secret", ["", "wrong", "s3cre", "s3cret "])
def test_a_caller_without_the_secret_is_refused(service: FlightListener, secret: str) -> None:
    peer = peer_of(service, secret)
    with pytest.raises(UnavailableError):
        peer.call(Echo())
    with pytest.raises(UnavailableError):
        list(peer.open_exchange(exchange_of(), SCHEMA).results())


def test_actions_answer_and_raise_our_own_errors(service: FlightListener) -> None:
    peer = peer_of(service)
    assert peer.call(Echo(numbers=(1, None))) == Echoed(numbers=(1, None))
    with pytest.raises(FencedError, match="epoch 7 is over"):
        peer.call(Ping(epoch=7))


def test_an_exchange_gives_results_of_complete_input(service: FlightListener, doubler: Doubler) -> None:
    with closing(peer_of(service).open_exchange(exchange_of(), SCHEMA)) as call:
        call.send(numbers(1, 2))
        call.send(numbers(3))
        call.end()
        assert [batch.column(0).to_pylist() for batch in call.results()] == [[2, 4], [6]]
    assert doubler.ended == ["complete"]


def test_input_without_its_end_mark_is_not_complete(service: FlightListener, doubler: Doubler) -> None:
    call = peer_of(service).open_exchange(exchange_of(), SCHEMA)
    call.send(numbers(1))
    call._writer.done_writing()
    with closing(call), pytest.raises(UnavailableError):
        list(call.results())
    assert doubler.ended == ["broken"]


def test_a_users_error_crosses_the_wire_with_its_traceback(service: FlightListener) -> None:
    call = peer_of(service).open_exchange(exchange_of("fails"), SCHEMA)
    with closing(call), pytest.raises(UserFunctionError) as raised:
        list(call.results())
    assert (raised.value.uid, raised.value.key_group, raised.value.user_traceback) == ("u", 3, "ValueError: no")


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError("is wrong", field="f", remedy="Correct it"),
        NotRestorableError("does not fit", field="f", remedy="Change it"),
        ConflictError("taken"),
        FencedError("over"),
        UnavailableError("away", retry_after_s=7.0),
        CorruptDataError("damaged", path="shared/x", expected="a", found="b"),
        IncompatibleFormatError("newer", path="shared/x", expected="version 1", found="version 2"),
        UserFunctionError("raised in uid 'v'", uid="u", key_group=None, user_traceback="t"),
        ClosedError("closed"),
        InternalError("broken"),
    ],
)
def test_errors_keep_class_text_and_fields(error: StatefulSparkError) -> None:
    """A newer format stays a newer format and never becomes damage; field and remedy arrive as they were raised."""
    again = error_of(json.loads(json.dumps(error_body(error))))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_every_class_of_the_tree_keeps_its_class() -> None:
    """A class that is added to the tree is added to the codes too."""
    found = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, StatefulSparkError)]
    assert {cls for cls, _ in _CODES.values()} == set(found) - {StatefulSparkError}


def test_a_foreign_error_becomes_an_internal_one() -> None:
    again = error_of(error_body(KeyError("x")))
    assert isinstance(again, InternalError)
    assert "KeyError" in str(again)


@pytest.mark.parametrize("location", ["grpc+tcp://127.0.0.1:0", "grpc://127.0.0.1:0", "grpc+tls://127.0.0.1:0"])
def test_nothing_is_served_in_clear(location: str) -> None:
    with pytest.raises(InvalidInputError, match="unencrypted"):
        FlightService(location, "s3cret", [])


@pytest.mark.parametrize(("length", "is_served"), [(107, True), (108, False)])
def test_a_socket_s_path_has_a_largest_length(length: int, is_served: bool) -> None:
    """Of Linux; Arrow says only that the server did not start."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own folder may be too long already
        location = f"grpc+unix://{folder}/{'s' * (length - len(folder) - 1)}"
        if is_served:
            FlightService(location, "s3cret", []).shutdown()
        else:
            with pytest.raises(InvalidInputError, match=r"TMPDIR.*shorter"):
                FlightService(location, "s3cret", [])


def test_an_action_has_a_largest_size(service: FlightListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statefulspark.rpc.flight.ACTION_BYTES_MAX", 100)
    assert peer_of(service).call(Echo(text="b" * 50)) == Echoed(text="b" * 50)
    with pytest.raises(InvalidInputError, match="longer than 100"):
        peer_of(service).call(Echo(text="b" * 200))
