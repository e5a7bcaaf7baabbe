"""The job's Arrow Flight: nobody without the secret, errors keep their class, and input counts only when it is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from statefulspark.errors import CorruptDataError, FencedError, InternalError, StatefulSparkError, UnavailableError, UserFunctionError
from statefulspark.exchange.flight import ExchangeStream, FlightPeer, FlightService, error_body, error_of

SCHEMA = pa.schema([("n", pa.int64())])


class Doubler:
    """Doubles numbers; remembers how its input ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def output_schema(self, request: dict[str, Any]) -> pa.Schema:
        return SCHEMA

    def exchange(self, request: dict[str, Any], stream: ExchangeStream) -> dict[str, Any]:
        if request.get("fail"):
            raise UserFunctionError("process_element raised ValueError", uid="u", key_group=3, user_traceback="ValueError: no")
        try:
            batches = list(stream.batches())
        except UnavailableError:
            self.ended.append("broken")
            raise
        self.ended.append("complete")
        for batch in batches:
            stream.send(pa.RecordBatch.from_arrays([pa.array([2 * n for n in batch.column(0).to_pylist()])], schema=SCHEMA))
        return {"rows": sum(batch.num_rows for batch in batches)}


@pytest.fixture
def doubler() -> Doubler:
    return Doubler()


@pytest.fixture
def service(doubler: Doubler) -> Iterator[FlightService]:
    def fail(body: dict[str, Any]) -> dict[str, Any]:
        raise FencedError(f"epoch {body['epoch']} is over")

    server = FlightService("grpc+tcp://127.0.0.1:0", "s3cret", {"echo": lambda body: body, "fail": fail}, doubler)
    yield server
    server.shutdown()


def peer_of(service: FlightService, secret: str = "s3cret") -> FlightPeer:
    return FlightPeer(f"grpc+tcp://127.0.0.1:{service.port}", secret)


def numbers(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


@pytest.mark.parametrize("secret", ["", "wrong", "s3cre", "s3cret "])
def test_a_caller_without_the_secret_is_refused(service: FlightService, secret: str) -> None:
    peer = peer_of(service, secret)
    with pytest.raises(UnavailableError):
        peer.call("echo", {})
    with pytest.raises(UnavailableError):
        list(peer.open_exchange({}, SCHEMA).results())


def test_actions_answer_and_raise_our_own_errors(service: FlightService) -> None:
    peer = peer_of(service)
    assert peer.call("echo", {"a": [1, None]}) == {"a": [1, None]}
    with pytest.raises(FencedError, match="epoch 7 is over"):
        peer.call("fail", {"epoch": 7})


def test_an_exchange_gives_results_of_complete_input(service: FlightService, doubler: Doubler) -> None:
    with closing(peer_of(service).open_exchange({}, SCHEMA)) as call:
        call.send(numbers(1, 2))
        call.send(numbers(3))
        call.end()
        assert [batch.column(0).to_pylist() for batch in call.results()] == [[2, 4], [6]]
    assert doubler.ended == ["complete"]


def test_input_without_its_end_mark_is_not_complete(service: FlightService, doubler: Doubler) -> None:
    call = peer_of(service).open_exchange({}, SCHEMA)
    call.send(numbers(1))
    call._writer.done_writing()
    with closing(call), pytest.raises(UnavailableError):
        list(call.results())
    assert doubler.ended == ["broken"]


def test_a_users_error_crosses_the_wire_with_its_traceback(service: FlightService) -> None:
    call = peer_of(service).open_exchange({"fail": True}, SCHEMA)
    with closing(call), pytest.raises(UserFunctionError) as raised:
        list(call.results())
    assert (raised.value.uid, raised.value.key_group, raised.value.user_traceback) == ("u", 3, "ValueError: no")


@pytest.mark.parametrize(
    "error",
    [
        FencedError("over"),
        UnavailableError("away"),
        CorruptDataError("damaged", path="shared/x"),
        UserFunctionError("raised", uid="u", key_group=None, user_traceback="t"),
    ],
)
def test_errors_keep_class_and_text(error: StatefulSparkError) -> None:
    again = error_of(error_body(error))
    assert type(again) is type(error)
    assert str(again) == str(error)


def test_a_foreign_error_becomes_an_internal_one() -> None:
    again = error_of(error_body(KeyError("x")))
    assert isinstance(again, InternalError)
    assert "KeyError" in str(again)
