"""What the runtime guarantees for operator state when something fails, one scenario per guarantee.

The function buffers rows of all users in an attribute, which it writes to a split list and to a union list at the end of each batch. A row that
is lost, or that stands in two slots, shows in the lists.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from statefulspark import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    Types,
)
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.changelog import GROUP_VERSION
from statefulspark.checkpoint.formats.metadata import METADATA_NAME
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.cli.main import app
from statefulspark.errors import InvalidInputError, NotRestorableError, UserFunctionError
from statefulspark.storage.open import open_store
from statefulspark.testing import (
    BATCH,
    CHECKPOINT,
    DAMAGE_CHECKPOINT,
    FAIL_STORAGE,
    KILL_DRIVER,
    KILL_DRIVER_AFTER_SINK_COMMIT,
    KILL_DRIVER_BEFORE_SINK_COMMIT,
    KILL_SLOT,
    RESCALE,
    RESTORE_FROM_SAVEPOINT,
    RETRY_BATCH,
    SAVEPOINT,
    UPGRADE,
    TestingJob,
)

_GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden" / "savepoint-operator-state-v4"
_SCHEMA = {"user": pa.string()}
A, B, C, D, E, F = (("ada",), ("bob",), ("cyd",), ("dan",), ("eve",), ("fay",))
ALL = ["ada", "bob", "cyd", "dan", "eve", "fay"]


class Buffer(KeyedProcessFunction, CheckpointedFunction):
    """Keeps all users it has seen."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", Types.STRING()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING()))
        self.users = list(self.split.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.split.update(self.users)
        self.union.update(self.users)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.users.append(value.user)
        yield (value.user,)


class Echo(KeyedProcessFunction):
    """Keeps nothing."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield (value.user,)


class Poisoned(Buffer):
    """Cannot process the rows of mallory."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield from super().process_element(value, ctx)
        if value.user == "mallory":
            raise ValueError("mallory is not welcome")


class Renamed(Buffer):
    """Calls the list by another name."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.split = context.get_operator_state_store().get_list_state(ListStateDescriptor("lines", Types.STRING()))
        self.union = context.get_operator_state_store().get_union_list_state(ListStateDescriptor("union", Types.STRING()))
        self.users = []


class Strict(Buffer):
    """Does not start with a union list that has an element twice."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        super().initialize_state(context)
        elements = list(self.union.get())
        if len(set(elements)) != len(elements):
            raise ValueError("an element of the union list has multiplied")


def job(function: KeyedProcessFunction | None = None, **settings: Any) -> TestingJob:
    """A job keyed by user, with two slots unless the scenario is about another number."""
    return TestingJob(function if function is not None else Buffer(), _SCHEMA, _SCHEMA, key="user", **settings)


def held(running: TestingJob, name: str = "split") -> list[str]:
    """The elements of all slots."""
    return sorted(element for elements in running.operator_state(name) for element in elements)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("when", ["idle", "before_changelog", "before_ack", "after_ack"])
def test_a_lost_slot_loses_and_repeats_no_element(backend: Any, when: Any) -> None:
    """Before and after the first batch of a distribution, which writes the operator state of all slots."""
    with job(backend=backend) as lost:
        slot = lost.slot_of("ada")
        lost.run([A, B, KILL_SLOT(slot, when), C, BATCH, D, BATCH, E, KILL_SLOT(slot, when), A, F])
        assert held(lost) == sorted(["ada", *ALL])


@pytest.mark.parametrize("death", [KILL_DRIVER, KILL_DRIVER_BEFORE_SINK_COMMIT, KILL_DRIVER_AFTER_SINK_COMMIT])
def test_a_lost_driver_loses_and_repeats_no_element(death: Any) -> None:
    """Whether its last batch runs again or is adopted from it; a union list is the union of all slots' elements."""
    with job() as lost:
        lost.run([A, B, BATCH, C, death, D, death, E, CHECKPOINT, F, death])
        assert held(lost) == ALL
        assert held(lost, "union") == ALL


def test_a_batch_that_runs_again_starts_from_the_list_before_it() -> None:
    """The attribute of the copy that ran first is not used."""
    with job(parallelism=1) as retried:
        retried.run([A, RETRY_BATCH, B, RETRY_BATCH])
        assert retried.operator_state("split") == [["ada", "bob"]]


def test_a_rescaled_job_splits_the_list_evenly() -> None:
    """Also without a batch at a parallelism between; then elements go to the slots of the last one only."""
    with job(parallelism=1) as rescaled:
        rescaled.run([A, B, C, D, E, F, RESCALE(4), RESCALE(2), RESCALE(3)])
        assert [len(elements) for elements in rescaled.operator_state("split")] == [2, 2, 2]
        assert held(rescaled) == ALL
        rescaled.run([RESCALE(1), KILL_DRIVER, RESCALE(2), CHECKPOINT, RESCALE(5), A])
        assert held(rescaled) == sorted(["ada", *ALL])


def test_a_union_list_does_not_multiply_in_slots_without_rows() -> None:
    """A slot reports what its function has made of the list, and the driver writes that for it in the first batch."""
    with job(Strict(), parallelism=3) as strict:
        strict.run([A, B, C, D, RESCALE(2), E, RESCALE(3), F, RESCALE(4), KILL_DRIVER, CHECKPOINT, KILL_DRIVER])
        assert held(strict, "union") == ALL


def test_at_the_same_parallelism_each_slot_keeps_its_list() -> None:
    """As in Flink."""
    with job() as same:
        same.run([A, B, C, D, E, F])
        before = same.operator_state("split")
        same.run([KILL_DRIVER, CHECKPOINT, KILL_DRIVER, KILL_SLOT(0)])
        assert same.operator_state("split") == before


def test_a_driver_of_another_parallelism_adopts_a_batch_with_its_operator_state() -> None:
    """The sink has the batch, so it does not run again; the elements that it added are assigned to the new slots."""
    with job(parallelism=3) as adopted:
        adopted.run([A, B, BATCH, C, D, RESCALE(2), E, KILL_DRIVER_AFTER_SINK_COMMIT, RESCALE(3), F, KILL_DRIVER_AFTER_SINK_COMMIT])
        assert held(adopted) == ALL


def test_a_damaged_checkpoint_is_passed_over_with_its_operator_state() -> None:
    """The first batch since the older one has everything."""
    with job() as damaged:
        damaged.run([A, CHECKPOINT, B, RESCALE(3), C, CHECKPOINT, D, DAMAGE_CHECKPOINT, KILL_DRIVER, E, F])
        assert held(damaged) == ALL


@pytest.mark.parametrize("then", [KILL_DRIVER, RESCALE(3)])
def test_a_damaged_operator_file_is_passed_over(tmp_path: Path, then: Any) -> None:
    """The driver finds it when it distributes operator state, and falls back to the checkpoint before it; the job continues."""
    with job(folder=tmp_path) as damaged:
        damaged.run([A, B, CHECKPOINT, C, D, BATCH, E, CHECKPOINT])
        newest = max(tmp_path.glob("storage/job/chk-*"), key=lambda path: int(path.name[4:]))
        for path in newest.glob("slot-*/operator"):
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        damaged.run([then, F])
        assert (newest / "_damaged").exists()
        assert held(damaged) == ALL


def test_slots_that_restart_find_their_operator_state_in_storage() -> None:
    """From the checkpoint, and from the changelogs after it."""
    with job() as restarted:
        restarted.run([A, B, CHECKPOINT, KILL_SLOT(0), KILL_SLOT(1), C, D, KILL_SLOT(0), KILL_SLOT(1), E, CHECKPOINT, F])
        restarted.run([KILL_SLOT(0), KILL_SLOT(1)])
        assert held(restarted) == ALL


def test_failing_storage_loses_no_element() -> None:
    """A batch that cannot write its changelog runs again."""
    with job() as failing:
        failing.run([A, B, FAIL_STORAGE(3), C, D, FAIL_STORAGE(2), E, F])
        assert held(failing) == ALL


def test_a_savepoint_has_the_operator_state(tmp_path: Path) -> None:
    """It restores into another job with another number of slots, and is read without its code."""
    with job(folder=tmp_path / "old", parallelism=3) as old:
        old.run([A, B, C, SAVEPOINT, D])
        url = old.savepoints[0]
    assert verify(url).problems == ()
    sizes = {size.info.name: size for size in state_sizes(url)}
    assert (sizes["split"].entries, sizes["split"].info.kind, sizes["union"].info.kind) == (3, "operator-list", "operator-union")
    assert sorted(entry.value for entry in read_state(url, "testing", "split")) == ["ada", "bob", "cyd"]
    assert {entry.slot for entry in read_state(url, "testing", "split")} <= {0, 1, 2}
    with pytest.raises(InvalidInputError, match="has no keys"):
        read_state(url, "testing", "split", key="ada")
    printed = CliRunner().invoke(app, ["state", url, "--uid", "testing", "--state", "split", "--output", "json"])
    assert {entry["value"] for entry in json.loads(printed.output)["entries"]} == {"ada", "bob", "cyd"}
    assert {key for entry in json.loads(printed.output)["entries"] for key in entry} == {"slot", "value"}
    assert "slot" in CliRunner().invoke(app, ["state", url, "--uid", "testing", "--state", "split"]).output
    with job(folder=tmp_path / "new", parallelism=2, restore_from=url) as new:
        assert held(new) == ["ada", "bob", "cyd"]
        new.run([E])
        assert held(new) == ["ada", "bob", "cyd", "eve"]


def test_a_savepoint_of_version_4_restores(tmp_path: Path) -> None:
    """It was written when operator state came: never regenerate it. Today's code verifies it and restores it to other numbers of slots."""
    url = shutil.copytree(_GOLDEN, tmp_path / "savepoint").as_uri()
    assert verify(url).problems == ()
    assert sorted(entry.value for entry in read_state(url, "testing", "split")) == ALL
    for parallelism in (1, 2, 3):
        with job(folder=tmp_path / f"job-{parallelism}", parallelism=parallelism, restore_from=url) as restored:
            restored.run([A])
            assert held(restored) == ["ada", *ALL]
            assert sum(map(bool, restored.operator_state("split"))) == parallelism


def test_a_job_goes_back_to_a_savepoint_with_its_operator_state() -> None:
    """Elements of later batches are gone, and those of the rows that are read again come back."""
    with job() as back:
        back.run([A, B, SAVEPOINT, C, D, RESTORE_FROM_SAVEPOINT(3), E])
        assert held(back) == ["ada", "bob", "cyd", "dan", "eve"]


def test_a_damaged_operator_file_is_found(tmp_path: Path) -> None:
    """`verify` names it."""
    with job(folder=tmp_path) as old:
        old.run([A, B, C, SAVEPOINT])
        url = old.savepoints[0]
    folder = Path(url.removeprefix("file://"))
    part = open_checkpoint(url, open_store).metadata.operator_state[0]
    path = folder / part.path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = verify(url)
    assert any("operator" in problem for problem in report.problems)
    path.unlink()
    assert any("missing" in problem for problem in verify(url).problems)
    assert (folder / METADATA_NAME).exists()


def test_new_code_keeps_operator_state_that_it_does_not_declare() -> None:
    """A release without the lists keeps them as bytes through batches, rescales and restarts; the next one has them again, each element once."""
    with job() as upgraded:
        upgraded.run([A, B, C, UPGRADE(Echo()), D, RESCALE(3), E, KILL_DRIVER, CHECKPOINT, KILL_DRIVER, UPGRADE(Buffer()), F])
        assert held(upgraded) == ["ada", "bob", "cyd", "fay"]
        assert held(upgraded, "union") == ["ada", "bob", "cyd", "fay"]


def test_a_function_gets_operator_state_in_an_upgrade() -> None:
    """Storage has state of the step, but none of these lists."""
    with job(Echo()) as upgraded:
        upgraded.run([A, B, CHECKPOINT, C, UPGRADE(Buffer()), D, KILL_DRIVER, E])
        assert held(upgraded) == ["dan", "eve"]


def test_a_renamed_operator_state_is_refused() -> None:
    """As a renamed keyed state is."""
    with job() as renamed:
        renamed.run([A, B])
        with pytest.raises(NotRestorableError, match="Declare it as"):
            renamed.run([UPGRADE(Renamed()), C])


def test_a_batch_that_fails_leaves_no_element() -> None:
    """The fixed code runs it from the list before it."""
    with job(Poisoned()) as poisoned:
        poisoned.run([A, B])
        with pytest.raises(UserFunctionError):
            poisoned.run([C, ("mallory",)])
        poisoned.run([UPGRADE(Buffer())])
        assert held(poisoned) == ["ada", "bob", "cyd", "mallory"]


def test_jobs_without_operator_state_write_what_they_wrote(tmp_path: Path, changelog_inline_threshold: int) -> None:
    """Version 1 of changelogs, or the version of groups of them, and no operator files."""
    with job(Echo(), folder=tmp_path) as plain:
        plain.run([A, B, CHECKPOINT, C, RESCALE(3), D])
        changelogs = [path for path in (tmp_path / "storage").rglob("changelog/**/*") if path.is_file()]
        assert changelogs
        assert {path.read_bytes()[4] for path in changelogs} == {GROUP_VERSION if changelog_inline_threshold else 1}
        assert not list((tmp_path / "storage").rglob("operator"))
        documents = b"".join(path.read_bytes() for path in (tmp_path / "storage").rglob(METADATA_NAME))
        assert documents
        assert b'"operator_state"' not in documents
        assert b'"second_watermarks"' not in documents
