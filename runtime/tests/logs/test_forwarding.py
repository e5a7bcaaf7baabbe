"""Records of slots on other machines reach the driver's last records with heartbeats: few, short, from WARNING on, and under the slot's own number."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from statefulspark.exchange.config import SlotLogs
from statefulspark.logs.forwarding import FACTS_MAX, KEPT_MAX, RECORDS_MAX, TEXT_MAX, show_forwarded
from statefulspark.logs.levels import LogLevels
from statefulspark.logs.redaction import Redaction
from statefulspark.logs.socket_lines import LogReceiver
from statefulspark.logs.tail import LogTail
from statefulspark.slot.logs import logs_of_slot, logs_of_step

pytestmark = pytest.mark.usefixtures("logging_as_before")

SHOP = logging.getLogger("shop.orders")
ELSEWHERE = SlotLogs(levels=LogLevels(user=logging.DEBUG), socket="/nowhere/on/this/machine/s")


@pytest.fixture
def tail() -> LogTail:
    found = LogTail(Redaction(["a-real-secret-0123"]))
    logging.getLogger().handlers = [found]
    return found


def shown(tail: LogTail) -> list[tuple[object, ...]]:
    records, _ = tail.read(after=0, most=10_000, level=0, slot=None, uid=None)
    return [
        (one.facts["event"], one.facts["level"], one.facts["slot"], one.facts.get("uid"), one.facts.get("key_group")) for one in records
    ]


def test_warnings_of_a_slot_on_another_machine_arrive(tail: LogTail, capsys: pytest.CaptureFixture[str]) -> None:
    """With time, origin and traceback, without the driver's secrets; the executor's log has every record, the driver's stderr none of them."""
    with logs_of_slot(ELSEWHERE, 3) as forwarded, logs_of_step("orders", lambda: 17):
        SHOP.info("ordinary")
        SHOP.warning("late by %d", 5)
        try:
            raise ValueError("a-real-secret-0123 is wrong")
        except ValueError:
            SHOP.exception("left out")
        taken = forwarded.take()
        assert forwarded.take() == ()
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["ordinary", "late by 5", "left out"]
    show_forwarded(3, taken)
    assert shown(tail) == [("late by 5", "warning", 3, "orders", 17), ("left out", "error", 3, "orders", 17)]
    records, _ = tail.read(after=0, most=1, level=0, slot=3, uid="orders")
    assert records[0].facts["exception"].endswith("ValueError: *** is wrong")
    assert records[0].facts["timestamp"] == json.loads(taken[1])["timestamp"]
    assert capsys.readouterr().err == ""


def test_what_a_slot_sends_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    """In number per heartbeat and of those that wait, and in length; the end of a traceback says what was raised."""
    with logs_of_slot(ELSEWHERE, 0) as forwarded:
        for i in range(3 * KEPT_MAX):
            SHOP.error(
                "%d %s", i, "x" * 5_000, extra={f"fact{j}": ["y"] * 1_000 for j in range(FACTS_MAX)} | {"exception": "z" * 3_000 + "!"}
            )
        first = forwarded.take()
        sent = [*first, *(line for _ in range(KEPT_MAX) for line in forwarded.take())]
    assert len(first) == RECORDS_MAX
    assert [json.loads(line)["event"].split()[0] for line in sent] == [str(i) for i in range(2 * KEPT_MAX, 3 * KEPT_MAX)], "the newest"
    assert max(map(len, sent)) < (FACTS_MAX + 1) * (TEXT_MAX + 2 * 250)
    assert json.loads(sent[0])["exception"].endswith("z!")
    capsys.readouterr()


def test_a_slot_cannot_speak_for_another_and_nonsense_is_ignored(tail: LogTail) -> None:
    lines = [
        '{"event":"mine","level":"error","logger":"x","timestamp":"2026-01-01T00:00:00Z","slot":7,"args":[1],"levelno":"x"}',
        "no json", "[]", "{}", '{"event":1}', '{"event":"e","level":"error","logger":"x","timestamp":"soon"}',
    ]  # fmt: skip
    show_forwarded(2, lines)
    assert shown(tail) == [("mine", "error", 2, None, None)]


def test_a_slot_on_the_drivers_machine_sends_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LogReceiver(tmp_path) as receiver, logs_of_slot(SlotLogs(socket=receiver.path), 0) as forwarded:
        SHOP.error("by the socket")
        assert forwarded.take() == ()
    capsys.readouterr()
