"""What a keyed step counts beside its work."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from statefulspark.keygroups import KeyGroupRange
from statefulspark.process.rows.key_group_rows import KeyGroupRows
from statefulspark.slot import step_metrics as figures
from statefulspark.slot.step_metrics import PARTS, BatchClock, counted


class Time:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(figures, "time", made)
    return made


def rows(*hashes: int | None) -> pa.RecordBatch:
    return pa.record_batch({"__kh": pa.array(hashes, pa.int64())})


def test_the_parts_of_a_batch_add_up_to_all_of_it(time: Time) -> None:
    """Waiting for rows is not processing, also when both take turns; an error in a part still counts."""
    clock = BatchClock()
    with clock.part("begin"):
        time.now += 1

    def upstream() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            time.now += 2
            yield rows(1)
        time.now += 4

    for _ in clock.waits(upstream()):
        time.now += 8
        with clock.part("output"):
            time.now += 16

    def encode() -> None:
        with clock.part("encode"):
            time.now += 32
            raise ValueError("full")

    with pytest.raises(ValueError, match="full"):
        encode()
    seconds = clock.seconds()
    assert seconds == {"begin": 1, "input": 10, "process": 24, "output": 48, "encode": 32, "durable": 0}
    assert tuple(seconds) == PARTS
    assert sum(seconds.values()) == time.now - 100


def test_rows_are_passed_on_and_counted_without_ticks() -> None:
    spread = KeyGroupRows(KeyGroupRange(0, 7), 8)
    batches = [rows(1, None, 9), rows(None), rows(-1)]
    assert list(counted(iter(batches), spread)) == batches
    assert spread.spread(5).top == ((1, 2), (7, 1))
