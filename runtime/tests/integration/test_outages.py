"""Storage that fails while a batch record is written, with real Spark: its query restarts and finds more rows than the record has."""

from __future__ import annotations

from typing import Any

import pytest

from statefulspark.checkpoint.lineage.lineage import write_record
from statefulspark.errors import UnavailableError

from .oracles import by, counted, files, finals
from .work import Work


@pytest.mark.exhaustive
def test_rows_that_arrive_during_an_outage_count_once_after_a_lost_driver(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes all files that there are. The planned batch keeps its rows through three failed writes, so the next driver skips none."""
    work.entrypoint = "beside"
    inputs = [[each | {"amount": each["amount"] + 1} for each in rows] for rows in files(seed=61, number=3)]
    failures = 0

    def unreliable(store: Any, record: Any, *rest: Any) -> str:
        nonlocal failures
        if record.batch == 1 and failures < 5:
            failures += 1
            if failures == 1:
                work.write(inputs[2])
            raise UnavailableError("outage")
        return write_record(store, record, *rest)

    monkeypatch.setattr("statefulspark.coordinator.batches.records.write_record", unreliable)
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(len(inputs[0]))
    work.write(inputs[1])
    work.wait_rows(sum(map(len, inputs)), timeout_s=120)
    job.cancel()
    assert failures == 5
    work.run()
    expected = counted(by("account", inputs))
    assert work.rows() == sorted(expected)
    assert work.state("count", "total") == finals(expected, 2)
