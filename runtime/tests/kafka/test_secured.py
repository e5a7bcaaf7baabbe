"""TLS and SASL/SCRAM: source and sink of a job log in with a password that nobody finds afterwards."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from runtime.tests.certificates import authority_of

from statefulspark.errors import UnavailableError
from statefulspark.kafka.transactions import Message, SinkSettings, write_partition

from .broker import Broker
from .job_runs import PaymentsJob

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

PASSWORD = 'k9f3-"quo\\ted"=&$Zürich 7c21d8'
MARKS = ("k9f3-", "7c21d8")
"""Its beginning and its end, which are the same however it is quoted."""


def write(broker: Broker, topic: str, call_timeout_s: float, password: str = PASSWORD, authority: bytes = b"") -> int | None:
    """Write a row with the sink, by the broker's secured address."""
    options = {
        "bootstrap.servers": broker.secured_address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "sink",
        "sasl.password": password,
        "ssl.ca.pem": (authority or broker.authority).decode(),
    }
    settings = SinkSettings(
        identity=f"test/{topic}", topic=topic, partitions=1, options=options, transaction_timeout_s=120.0, call_timeout_s=call_timeout_s
    )
    return write_partition(settings, 0, 0, [Message(topic, b"row")])


def test_the_sink_logs_in_and_tells_a_wrong_password_without_showing_it(broker: Broker) -> None:
    topic = broker.topic()
    broker.add_user("sink", PASSWORD)
    assert write(broker, topic, 120.0) == 1
    assert [message.value() for message in broker.read(topic)] == [b"row"]
    with pytest.raises(UnavailableError, match="invalid credentials") as wrong:
        write(broker, topic, 15.0, password=f"{PASSWORD} and more")
    assert _marked(str(wrong.value)) == []


@pytest.mark.exhaustive
def test_the_sink_does_not_log_in_at_a_broker_that_another_authority_has_signed(broker: Broker) -> None:
    broker.add_user("sink", PASSWORD)
    with pytest.raises(UnavailableError, match="SSL handshake failed"):
        write(broker, broker.topic(), 15.0, authority=authority_of().certificate)


@pytest.fixture
def job(broker: Broker, tmp_path: Path) -> PaymentsJob:
    """The example at the secured address, with a mounted Secret of its own and everything that it writes below ``tmp_path / "job"``."""
    secret, folder = tmp_path / "secret", tmp_path / "job"
    for made in (secret, folder, folder / "tmp", folder / "events"):
        made.mkdir()
    broker.add_user("payments", PASSWORD)
    for name, content in (("username", b"payments"), ("password", f"{PASSWORD}\n".encode()), ("ca.crt", broker.authority)):
        (secret / name).write_bytes(content)
    return PaymentsJob(
        broker,
        folder,
        address=broker.secured_address,
        environment={"KAFKA_SECRET": str(secret), "TMPDIR": str(folder / "tmp")},
        spec={
            "sparkConf": {
                "spark.eventLog.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.eventLog.dir": (folder / "events").as_uri(),
                "spark.local.dir": str(folder / "tmp"),
            }
        },
    )


@pytest.mark.exhaustive
def test_the_password_is_in_nothing_that_a_job_shows_or_stores(job: PaymentsJob) -> None:
    """Status, history, logs, checkpoints, Spark's event log with its plans, and the arguments of every process; also while it runs."""
    job.send(1, 2500)
    with job.driver() as process:
        job.wait_for_rows(2500, process)
        job.command("savepoint", "--target", f"file://{job.folder}/savepoints")
        shown = [job.command(*arguments) for arguments in (["status"], ["status", "-o", "json"], ["history"], ["logs"])]
        assert job.source in shown[1]
        assert _marked(*shown, *_arguments()) == []
        assert _files_with_marks(job.folder.parent) == [job.folder.parent / "secret" / "password"]
        job.command("stop")
        assert process.wait(300) == 0
    assert _marked(job.command("status", "-o", "json"), job.command("history")) == []
    assert _files_with_marks(job.folder.parent) == [job.folder.parent / "secret" / "password"]
    assert "SparkListenerSQLExecutionStart" in "".join(path.read_text() for path in (job.folder / "events").rglob("events_*"))
    job.check()


def _marked(*texts: str) -> list[str]:
    return [text for text in texts if any(mark in text for mark in MARKS)]


def _arguments() -> list[str]:
    """Arguments of every process of the machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(path.read_bytes().decode(errors="replace"))
    assert any("payments.py" in each or "job.yaml" in each for each in found)
    return found


def _files_with_marks(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.rglob("*")):
        with suppress(OSError):  # a directory, a socket, or a file that is gone
            content = path.read_bytes()
            if any(mark.encode() in content for mark in MARKS):
                found.append(path)
    return found
