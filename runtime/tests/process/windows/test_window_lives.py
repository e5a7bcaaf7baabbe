"""Windows in whole jobs without Spark: slots and drivers die and the job is rescaled, and the output is the oracle's."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from statefulspark import EventTimeSessionWindows, OutputTag, SlidingEventTimeWindows, Time, Types
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats import changelog, documents
from statefulspark.checkpoint.formats.changelog import read_changelog
from statefulspark.checkpoint.formats.metadata import METADATA_NAME
from statefulspark.errors import IncompatibleFormatError
from statefulspark.process.windows.late_rows import LateRow
from statefulspark.process.windows.window_operator import WindowOperator
from statefulspark.process.windows.windowed_transformations import StepTimes, WindowedTransformations
from statefulspark.storage.open import open_store
from statefulspark.testing import (
    BATCH,
    CHECKPOINT,
    DRAIN,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)
from statefulspark.testing.schemas import arrow_schema

from .test_windows_against_oracle import KEYS, OUTPUT, ROWS, Joined, Listed, Named
from .window_oracle import KeyOracle, Rules

LATE = OutputTag("late", ROWS)


class Operators(WindowedTransformations[WindowOperator]):
    """Gives the operator of a window step."""

    def _columns(self) -> pa.Schema:
        return arrow_schema(ROWS)

    def _late_row(self) -> Callable[[Any], Any]:
        return LateRow((0, 1, 2))

    def _made(self, operator: WindowOperator, output_type: Any, times: StepTimes) -> WindowOperator:
        return operator


def sessions() -> WindowOperator:
    windows = Operators(EventTimeSessionWindows.with_gap(Time.milliseconds(7))).allowed_lateness(20).side_output_late_data(LATE)
    return windows.process(Listed(), OUTPUT, uid="w", event_time="at")


def joint_sessions() -> WindowOperator:
    """Sessions of the default trigger, whose contents are an aggregate: a key has them in one entry."""
    windows = Operators(EventTimeSessionWindows.with_gap(Time.milliseconds(7))).allowed_lateness(20).side_output_late_data(LATE)
    return windows.aggregate(Joined(), Named(), Types.STRING(), OUTPUT, uid="w", event_time="at")


def sliding() -> WindowOperator:
    windows = Operators(SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(4))).side_output_late_data(LATE)
    return windows.aggregate(Joined(), Named(), Types.STRING(), OUTPUT, uid="w", event_time="at")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("make", "rules"),
    [
        (sessions, Rules(("session", 7), ("event",), event_time=True, lateness=20)),
        (joint_sessions, Rules(("session", 7), ("event",), event_time=True, lateness=20)),
        (sliding, Rules(("sliding", 10, 4, 0), ("event",), event_time=True)),
    ],
)
def test_windows_survive_whatever_fails(make: Callable[[], WindowOperator], rules: Rules, seed: int, tmp_path: Path) -> None:
    """Rows out of order, some too late, in random batches with a failure after each. A drain ends all windows and empties their state."""
    chance = random.Random(seed)
    rows = [(chance.choice(KEYS), number, number + chance.randint(-60, 10)) for number in range(120)]
    items: list[Any] = []
    batches: list[list[tuple[str, int, int]]] = [[]]
    for row in rows:
        items.append(row)
        batches[-1].append(row)
        if chance.random() < 0.25:
            event = chance.choice(
                [BATCH, CHECKPOINT, KILL_SLOT(0), KILL_DRIVER, KILL_DRIVER_AFTER_SINK_COMMIT, RETRY_BATCH, RESCALE(1), RESCALE(3)]
            )
            items.append(event)
            batches.append([])
    backend: Literal["memory", "rocksdb"] = "rocksdb" if seed % 2 else "memory"
    with TestingJob(
        make(), ROWS, OUTPUT, key="key", event_time="at", watermark_ms=5, side_outputs=[LATE], folder=tmp_path, backend=backend
    ) as job:
        job.run([*items, DRAIN])
        output, late = job.output, job.get_side_output(LATE)
        left = {name: job.state(name) for name in ("_merging_windows(MergingTimeWindow, list)",) if make is sessions}
        timers = job.event_time_timers()
    oracles = {key: KeyOracle(rules) for key in KEYS}
    watermark, latest = -(1 << 63), -(1 << 63)
    for batch in batches:
        for key, oracle in oracles.items():
            oracle.batch([(value, at) for row_key, value, at in batch if row_key == key], watermark, 0)
        latest = max([latest, *(at for _, _, at in batch)])
        watermark = max(watermark, latest - 5) if batch or latest > -(1 << 63) else watermark
    for oracle in oracles.values():
        oracle.batch([], (1 << 63) - 1, 0)
    for key, oracle in oracles.items():
        assert [row for row in output if row[0] == key] == [(key, *window, ",".join(map(str, each))) for window, each in oracle.emitted]
        assert [row[1] for row in late if row[0] == key] == oracle.late
    assert sum(len(oracle.late) for oracle in oracles.values()) > 0
    assert (timers, left) == ([], {name: {} for name in left})


def test_a_release_without_joint_sessions_refuses_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would leave them behind, so checkpoints and changelogs are of a version that it does not know: the last it knows are 9 and 4."""
    rows = [("a", number, 100 * number) for number in range(4)]
    options: Any = {"key": "key", "event_time": "at", "side_outputs": [LATE]}
    with TestingJob(joint_sessions(), ROWS, OUTPUT, folder=tmp_path, **options) as job:
        job.run([*rows[:2], BATCH, *rows[2:], SAVEPOINT])
        (savepoint,) = job.savepoints
        # Those without states only prove that a slot had no rows.
        changelogs = [path for path in tmp_path.glob("**/changelog/*/*/*") if read_changelog(path).header.states]
    assert {path.read_bytes()[4] for path in changelogs} == {5}
    monkeypatch.setattr(documents, "FORMAT_VERSION", 9)
    with pytest.raises(IncompatibleFormatError, match="expected format_version 1 to 9, found format_version 14"):
        open_checkpoint(savepoint, open_store)
    monkeypatch.setattr(changelog, "VERSION", 4)
    with pytest.raises(IncompatibleFormatError, match="expected version 1 to 4, found version 5"):
        read_changelog(changelogs[0])
    with TestingJob(sessions(), ROWS, OUTPUT, folder=tmp_path / "other", **options) as job:
        job.run([*rows, SAVEPOINT])
        (savepoint,) = job.savepoints
        versions = {read_changelog(path).header.version for path in (tmp_path / "other").glob("**/changelog/*/*/*")}
    assert versions
    assert max(versions) <= 4
    assert b"_sessions(" not in (Path(savepoint.removeprefix("file://")) / METADATA_NAME).read_bytes()
