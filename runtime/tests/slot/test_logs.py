"""Log records of a slot's process: what they say, where they go, and that the process is as before when the slot has ended."""

from __future__ import annotations

import io
import json
import logging
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from statefulspark.cli.launch.log_output import configure_logging
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import SlotLogs
from statefulspark.logs.levels import LogLevel, LogLevels, present_levels
from statefulspark.logs.socket_lines import LogReceiver
from statefulspark.slot.logs import PrintedLines, logs_of_slot, logs_of_step

pytestmark = pytest.mark.usefixtures("logging_as_before")

SHOP = logging.getLogger("shop.orders")


def no_key() -> int:
    raise InvalidInputError("there is no current key")


def written(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, object, object, object]]:
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(line["timestamp"].endswith("Z") for line in lines)
    return [(line["event"], line["level"], line["slot"], line.get("uid"), line.get("key_group")) for line in lines]


def test_records_have_slot_uid_and_key_group_when_they_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """At every level from the chosen one on; `print` is a record too; internal records below their level are left out."""
    with logs_of_slot(SlotLogs(levels=LogLevels(user=logging.DEBUG, internal=logging.INFO)), 3):
        SHOP.info("outside of a step")
        with logs_of_step("orders", no_key):
            SHOP.info("opened")
        with logs_of_step("orders", lambda: 17):
            SHOP.debug("row %s", 7)
            SHOP.error("bad")
            print("half", end=" ")  # noqa: T201  what is tested
            print("a line\nand another")  # noqa: T201  what is tested
            structlog.get_logger("statefulspark.allocator").debug("internal")
            logging.getLogger("botocore.auth").info("signature")
    assert written(capsys) == [
        ("outside of a step", "info", 3, None, None),
        ("opened", "info", 3, "orders", None),
        ("row 7", "debug", 3, "orders", 17),
        ("bad", "error", 3, "orders", 17),
        ("half a line", "info", 3, "orders", 17),
        ("and another", "info", 3, "orders", 17),
    ]


def test_threads_have_steps_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Steps of one slot run at the same time."""
    with logs_of_slot(SlotLogs(), 0), logs_of_step("one", lambda: 1):

        def other() -> None:
            with logs_of_step("two", lambda: 2):
                SHOP.info("other")

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        SHOP.info("own")
    assert [line[3:] for line in written(capsys)] == [("two", 2), ("one", 1)]


def test_the_process_is_as_before_when_the_slot_has_ended() -> None:
    """Spark uses it again, for tasks that are no slots."""
    root = logging.getLogger()
    before = (root.handlers, present_levels(), sys.stdout, structlog.get_config())
    with pytest.raises(RuntimeError), logs_of_slot(SlotLogs(levels=LogLevels(user=logging.ERROR)), 0):
        raise RuntimeError("the slot's end")
    assert (root.handlers, present_levels(), sys.stdout, structlog.get_config()) == before


def test_a_line_that_never_ends_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    """`print(end="")` in a loop."""
    with logs_of_slot(SlotLogs(), 0):
        stream = PrintedLines()
        for _ in range(40):
            assert stream.write("x" * 1_000) == 1_000
    assert [len(line[0]) for line in written(capsys)] == [32_768]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: a socket's has about 100 bytes."""
    with tempfile.TemporaryDirectory(prefix="log", dir="/tmp") as path:
        yield Path(path)


def test_the_driver_shows_what_slots_send(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through a real socket, whose records are all written before the receiver ends, as lines with the time of the record in UTC."""
    console = Console(file=io.StringIO(), width=200)
    receiver = LogReceiver(folder)
    with logs_of_slot(SlotLogs(socket=receiver.path), 1), logs_of_step("orders", lambda: 9):
        SHOP.info("row 7 of %s", "ada", extra={"item": 8})
        try:
            raise ValueError("bad row")
        except ValueError:
            SHOP.exception("skipped")
    configure_logging(console, LogLevel.INFO)
    with receiver:
        pass
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]  # a StringIO
    assert lines[0].split() == [
        lines[0].split()[0],
        "INFO",
        "[slot",
        "1,",
        "key",
        "group",
        "9,",
        "uid",
        "orders]",
        "row",
        "7",
        "of",
        "ada",
        "item=8",
    ]
    assert lines[0][2] == lines[0][5] == ":"
    assert lines[0][8] == "Z"
    assert "ERROR" in lines[1]
    assert any("ValueError: bad row" in line for line in lines)
    assert capsys.readouterr().err == ""


def test_records_that_nobody_takes_go_to_standard_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The driver has died, or runs on another machine; a record that is too large for a datagram is not lost either."""
    with logs_of_slot(SlotLogs(socket=str(folder / "absent")), 1):
        SHOP.info("alone")
    assert written(capsys) == [("alone", "info", 1, None, None)]
    receiver = LogReceiver(folder)
    with logs_of_slot(SlotLogs(socket=receiver.path), 1):
        SHOP.info("large", extra={"rows": ["x" * 1_000] * 1_000})
    assert written(capsys) == [("large", "info", 1, None, None)]
    with receiver:
        pass


def test_a_path_that_is_too_long_for_a_socket_is_refused_with_the_variable(tmp_path: Path) -> None:
    """Linux takes 107 bytes."""
    (folder := tmp_path / ("x" * 100)).mkdir()
    with pytest.raises(InvalidInputError, match=r"TMPDIR: .*Set it to a folder with a shorter path"):
        LogReceiver(folder)
