"""A slot that is lost, and one that is restored, is one line each; a slot that starts or stops is none."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from statefulspark.checkpoint.restore.progress import RestoredBytes
from statefulspark.coordinator.slots.notices import SlotNotices
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.logs.json_lines import route_to_logging
from statefulspark.logs.levels import SLOTS_LOGGER


@pytest.fixture(autouse=True)
def through_logging(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO, logger=SLOTS_LOGGER)
    route_to_logging()
    yield
    structlog.reset_defaults()


def served(table: SlotTable, slot: int, pid: int) -> int:
    epoch = table.register(slot, "executor", "host", pid)
    assert epoch is not None
    table.ready(slot, epoch, "grpc://x", "")
    return epoch


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    # structlog hands over its event as the record's message
    return [record.msg["event"] if isinstance(record.msg, dict) else str(record.msg) for record in caplog.records]


def test_a_process_that_ended_and_its_successor(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing at the first start; a successor that dies while it restores is part of the same loss."""
    table = SlotTable(2, slots_per_executor=None, notices=SlotNotices())
    served(table, 0, 1)
    served(table, 1, 2)
    assert said(caplog) == []
    assert table.register(1, "executor", "host", 3) is not None
    served(table, 1, 4)
    lost, restored = said(caplog)
    assert lost.startswith("slot 1 was lost: its process has ended. The executor's log says why")
    assert lost.endswith(". Its rows wait until it is restored")
    assert restored.startswith("slot 1 was restored after ")


def test_a_slot_that_must_restore_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Retired, then replaced; while slots are stopped, nothing is said."""
    table = SlotTable(1, slots_per_executor=None, notices=SlotNotices())
    epoch = served(table, 0, 1)
    table.retire(0, epoch)
    served(table, 0, 2)
    assert [text.split(": ")[0].split(" after")[0] for text in said(caplog)] == ["slot 0 was lost", "slot 0 was restored"]
    caplog.clear()
    table.stopping = True
    table.retire(0, table.get(0).epoch)
    assert said(caplog) == []


def test_one_event_has_cause_restored_bytes_and_time() -> None:
    """Of each loss, in this table and in one that replaces it; a slot that starts is none."""
    events: list[tuple[int, str]] = []
    table = SlotTable(2, slots_per_executor=None, notices=SlotNotices())
    table.notices.on_restored(lambda slot, text: events.append((slot, text)))
    served(table, 0, 1)
    served(table, 1, 2)
    epoch = table.register(1, "another", "host", 3)
    assert epoch is not None
    table.restoring(1, epoch, RestoredBytes(downloaded_bytes=3 << 20, local_bytes=1 << 19, total_bytes=4 << 20))
    assert events == []
    table.ready(1, epoch, "grpc://x", "")
    ((slot, text),) = events
    assert slot == 1
    assert text.startswith("slot 1 was lost: its executor has ended")
    assert re.search(r"It was restored after \d+\.\d s, with 3\.0 MiB from storage and 0\.5 MiB from the local disk$", text)
