"""A job on a state backend of its own, through every event, gives what a plain count gives; its snapshots name the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from runtime.tests.state import sqlite_backend
from typer.testing import CliRunner

from statefulspark import KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor, state_tables
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.metadata import encode_metadata
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.cli.main import build_app
from statefulspark.errors import InvalidInputError
from statefulspark.state_tables.canonical.conversion import convert_to_canonical
from statefulspark.storage.open import open_store
from statefulspark.testing import (
    CHECKPOINT,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)

NAME = f"{sqlite_backend.__name__}:SQLiteBackend"
USER = {"user": pa.string()}
COUNT = {"user": pa.string(), "count": pa.int64()}
USERS = ["ada", "bob", "cy", "dee", "eve"]


class Visits(KeyedProcessFunction):
    """Counts the rows of a user."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value.user, self.count.value()


def _job(folder: Path, **options: Any) -> TestingJob:
    return TestingJob(Visits(), USER, COUNT, key="user", **{"backend": NAME, "folder": folder, "max_parallelism": 16, **options})


EVENTS: list[Any] = [
    KILL_SLOT(0),
    CHECKPOINT,
    RETRY_BATCH,
    RESCALE(3),
    SAVEPOINT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    CHECKPOINT,
    KILL_SLOT(1),
    RESCALE(1),
    RESTORE_FROM_SAVEPOINT(2),
    CHECKPOINT,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    RESCALE(2),
]


def test_every_event_on_an_own_backend(tmp_path: Path) -> None:
    """Rows between any two events; lost, restored and cut stores give the count of a plain counter."""
    steps: list[Any] = []
    for number, event in enumerate(EVENTS):
        steps += [event, *[(USERS[(number * 2 + each) % 5],) for each in range(4)]]
    with _job(tmp_path) as job:
        output = job.run(steps)
        state = job.state("count")
    counted, expected = Counter[str](), []
    for step in steps:
        if isinstance(step, tuple):
            counted[step[0]] += 1
            expected.append((step[0], counted[step[0]]))
    # What a restore from a savepoint reads again is given out again, with the same counts.
    assert sorted(set(output)) == sorted(expected)
    assert state == dict(counted)


def test_snapshots_name_the_class_and_can_be_read(tmp_path: Path) -> None:
    """With private files only, although the file has RocksDB's suffix; verify and state import the class; the job has named it."""
    with _job(tmp_path / "one") as job:
        job.run([*[(user,) for user in USERS], CHECKPOINT, ("ada",), SAVEPOINT])
        (savepoint,) = job.savepoints
    found = open_checkpoint(savepoint, open_store)
    assert {slot.backend for slot in found.metadata.slots} == {NAME}
    assert all(not slot.shared and [file.name for file in slot.private] == [sqlite_backend.FILE] for slot in found.metadata.slots)
    document = found.store.get(found.key)
    assert document.startswith(b'{"format_version":14,')
    report = verify(savepoint)
    assert report.problems == ()
    counts = [entry.value for entry in read_state(savepoint, "testing", "count")]
    assert sorted(counts) == [1, 1, 1, 1, 2]
    with _job(tmp_path / "two", parallelism=3, restore_from=savepoint) as job:
        assert sorted(job.run([("ada",), ("eve",)])) == [("ada", 3), ("eve", 2)]


HOSTILE = """
from pathlib import Path
from statefulspark import StateBackend
Path(__file__).with_name("ran").touch()
class Mine(StateBackend):
    pass
"""


def test_no_tool_runs_the_module_that_a_checkpoint_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes a checkpoint chooses the name; importing `antigravity` opens a browser, and others do worse."""
    with _job(tmp_path / "job", backend="memory") as job:
        job.run([("ada",), SAVEPOINT])
        (savepoint,) = job.savepoints
    found = open_checkpoint(savepoint, open_store)
    module = f"hostile_{uuid4().hex}"
    hostile = tuple(slot.model_copy(update={"backend": f"{module}:Mine"}) for slot in found.metadata.slots)
    Path(savepoint.removeprefix("file://"), "_metadata").write_bytes(encode_metadata(found.metadata.model_copy(update={"slots": hostile})))
    (tmp_path / f"{module}.py").write_text(HOSTILE)
    monkeypatch.syspath_prepend(tmp_path)
    target = f"file://{tmp_path}/out"
    tries: list[Callable[[], object]] = [
        lambda: verify(savepoint),
        lambda: state_sizes(savepoint),
        lambda: list(read_state(savepoint, "testing", "count")),
        lambda: state_tables.read_arrow(savepoint, "testing", "count"),
        lambda: state_tables.delete_keys(savepoint, target, "testing", ["ada"]),
        lambda: (
            state_tables.SavepointWriter.from_existing_savepoint(savepoint).change_operator_identifier("testing", "other").write(target)
        ),
        lambda: convert_to_canonical(savepoint, target, open_store=open_store),
    ]
    for each in tries:
        with pytest.raises(InvalidInputError, match=rf"names the state backend '{module}:Mine'.*--backend"):
            each()
    for command in (["verify", savepoint], ["state", savepoint], ["convert", savepoint, target]):
        said = CliRunner().invoke(build_app(), command)
        assert said.exit_code != 0
        assert not (tmp_path / "ran").exists(), command
    named = CliRunner().invoke(build_app(), ["verify", savepoint, "--backend", f"{module}:Mine"])
    assert named.exit_code != 0
    assert (tmp_path / "ran").exists(), "the caller has named it"


def test_another_backend_cannot_restore_it(tmp_path: Path) -> None:
    """The refusal names both, and the remedy."""
    with _job(tmp_path / "one") as job:
        job.run([("ada",), SAVEPOINT])
        (savepoint,) = job.savepoints
    with pytest.raises(InvalidInputError, match=r"written by the state backend '.*:SQLiteBackend', but the job uses 'memory'. Set the"):
        _job(tmp_path / "two", backend="memory", restore_from=savepoint).run([("ada",)])


def test_a_wrong_name_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"^spec.stateBackend.type: cannot import 'nowhere_at_all'"):
        _job(tmp_path, backend="nowhere_at_all:Mine")
