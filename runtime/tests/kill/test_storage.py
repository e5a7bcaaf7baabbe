"""Storage fails, does not answer and loses its replies, on S3 over HTTP: every row counts once, every state is exact."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime.tests.s3_server import s3_server

from .harness import Ledger, ending

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(1200)]

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
_KINDS = ("error", "timeout", "lost-reply")


@pytest.fixture
def s3() -> Iterator[str]:
    """URL of an S3 service with an empty bucket named ``bucket``."""
    with s3_server() as server:
        yield server.endpoint


@pytest.mark.parametrize(
    ("losses", "files", "least"), [((9,), 24, 10), pytest.param((15, 30), 60, 20, marks=pytest.mark.exhaustive)], ids=["one", "two"]
)
def test_failing_storage(
    s3: str,
    tmp_path: Path,
    java_options: str,
    monkeypatch: pytest.MonkeyPatch,
    losses: tuple[int, ...],
    files: int,
    least: int,
) -> None:
    """At least so many of each: errors, timeouts (whether or not it happened), lost replies; meanwhile one or two drivers lose their machine."""
    for name, value in _CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    faults = tmp_path / "faults"
    ledger = Ledger(
        folder=tmp_path,
        java_options=java_options,
        seed=404,
        files=files,
        interval="1s",
        storage_url=f"s3://bucket/{uuid.uuid4().hex}",
        s3={"endpoint": s3, "region": "us-east-1", "pathStyle": True},
        environment={"STATEFULSPARK_STORAGE_FAULTS": f"seed=404,rate=0.15,kinds={'|'.join(_KINDS)},log={faults}"},
    )
    with ending(ledger):
        for batch in losses:
            ledger.start()
            ledger.wait_for_batch(batch)
            ledger.kill_driver()
            ledger.wipe_disk()
        ledger.start("--until-idle")
        ledger.wait(300)
        injected = Counter(line.split()[0] for line in faults.read_text().splitlines())
        print(f"injected: {dict(injected)}")  # noqa: T201  pytest shows it when the test fails
        assert all(injected[kind] >= least for kind in _KINDS)
        ledger.check()
