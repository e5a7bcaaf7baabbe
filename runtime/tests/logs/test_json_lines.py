"""Log records as JSON lines and back, by both libraries, bounded, with the time at which they were made."""

from __future__ import annotations

import io
import json
import logging
import os
from pathlib import Path

import pytest
import structlog

from statefulspark.errors import InvalidInputError
from statefulspark.logs.json_lines import TEXT_MAX, json_formatter, record_of, route_to_logging
from statefulspark.logs.levels import SLOTS_LOGGER, LogLevel, LogLevels
from statefulspark.logs.log_file import LogFile, log_directory

pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def written() -> io.StringIO:
    """What a process writes that makes JSON lines of its records."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(json_formatter())
    logging.getLogger().handlers = [handler]
    logging.getLogger().setLevel(logging.DEBUG)
    route_to_logging()
    return stream


def test_a_record_comes_back_from_its_line(written: io.StringIO) -> None:
    """With the time at which it was made; what the user adds cannot replace what every record has."""
    record = logging.makeLogRecord(
        {"name": "shop", "levelno": logging.WARNING, "levelname": "WARNING", "msg": "100%% of %s", "args": ("ü\n",), "created": 1_700_000_000.25, "item": 7}
    )  # fmt: skip
    logging.getLogger("shop").handle(record)
    line = written.getvalue()
    assert line.count("\n") == 1
    assert json.loads(line)["timestamp"] == "2023-11-14T22:13:20.250000Z"
    found = record_of(line)
    assert found is not None
    assert (found.name, found.levelno, found.getMessage(), found.created) == ("shop", logging.WARNING, "100% of ü\n", 1_700_000_000.25)
    assert found.__dict__["item"] == 7
    forged = record_of('{"event": "e", "level": "info", "logger": "l", "timestamp": "2026-01-01T00:00:00Z", "args": [1], "levelno": 50}')
    assert forged is not None
    assert (forged.args, forged.levelno) == ((), logging.INFO)


@pytest.mark.parametrize(
    "line", ["", "Killed", "{}", "[]", "7", '{"event": 1}', '{"level": "info", "event": "", "logger": "", "timestamp": 3}']
)
def test_other_lines_are_no_records(line: str) -> None:
    """Whatever reaches the socket ends no thread."""
    assert record_of(line) is None


def test_texts_are_bounded_and_tracebacks_have_no_variables(written: io.StringIO) -> None:
    """A function may log a whole row, by either library."""
    held = "secret-" + "0123456789"
    for logger in (logging.getLogger("plain"), structlog.get_logger("structured")):
        try:
            raise ValueError("bad")
        except ValueError:
            logger.exception("x" * (TEXT_MAX + 5))
    for line in written.getvalue().splitlines():
        facts = json.loads(line)
        assert facts["event"] == "x" * TEXT_MAX + " ... (5 more characters)"
        assert facts["exception"].endswith("ValueError: bad")
        assert held not in line


@pytest.mark.parametrize(
    ("level", "internal", "shown"),
    [
        (LogLevel.DEBUG, logging.WARNING, {"shop": 10, "statefulspark.job": 30, SLOTS_LOGGER: 20, "py4j": 30, "botocore.auth": 30}),
        (LogLevel.INFO, logging.INFO, {"shop": 20, "statefulspark.job": 20, SLOTS_LOGGER: 20, "py4j": 30, "botocore.auth": 30}),
        (LogLevel.ERROR, logging.INFO, {"shop": 40, "statefulspark.job": 40, SLOTS_LOGGER: 40, "py4j": 40, "botocore.auth": 40}),
    ],
)
def test_levels(level: LogLevel, internal: int, shown: dict[str, int]) -> None:
    """Debug lines of the job do not bring those of statefulspark and its libraries; losses of slots are seen on a terminal too."""
    LogLevels(user=level.number, internal=internal).apply()
    assert {name: logging.getLogger(name).getEffectiveLevel() for name in shown} == shown


def test_a_log_file_is_this_users_only_is_appended_to_and_cut(tmp_path: Path) -> None:
    """What the JVM has written stays in the second file; its descriptor goes on at the beginning of the cut one."""
    path = tmp_path / "new" / "job.log"
    file = LogFile(path, bytes_max=10)
    file.write("earlier")
    file.cut()
    file.close()
    file = LogFile(path, bytes_max=10)
    file.write("this run")
    file.cut()
    file.write("after")
    file.close()
    assert path.read_text() == "after\n"
    assert path.with_name("job.log.1").read_text() == "earlier\nthis run\n"
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}


def test_a_log_file_that_cannot_be_written_is_refused_with_the_option(tmp_path: Path) -> None:
    """A folder, and a path below a file."""
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "log"):
        with pytest.raises(InvalidInputError, match=r"--log-file: .* cannot be written .*Name a file that can be written"):
            LogFile(path)


def test_logs_are_in_the_home_directory() -> None:
    """Never in the runtime directory, which is memory and is emptied at logout."""
    assert log_directory({"XDG_RUNTIME_DIR": "/run/user/1"}, Path("/home/me")) == Path("/home/me/.statefulspark/logs")
    assert log_directory({"STATEFULSPARK_HOME": "/var/lib/s"}, Path("/home/me")) == Path("/var/lib/s/logs")


def test_a_full_disk_costs_a_line_and_no_job(tmp_path: Path) -> None:
    """``/dev/full`` refuses every write as a full disk does."""
    file = LogFile(tmp_path / "job.log")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file.descriptor)
    os.close(full)
    file.write("a line")
    os.close(file.descriptor)
