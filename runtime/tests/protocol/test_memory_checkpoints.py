"""Checkpoints of the memory backend lie within ``_metadata``: their limits hold to the byte, and every crash and rescale restores them."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.write.inline import InlineLimits
from statefulspark.config.manifest import validate_job
from statefulspark.coordinator.controls import CheckpointInfo
from statefulspark.errors import InternalError, InvalidInputError, StatefulSparkError
from statefulspark.job.start.manifest_settings import slot_options
from statefulspark.rpc.messages.slots import SnapshotDone
from statefulspark.state.store.base import StoreSnapshot
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.storage.open import open_store

from .conftest import Start
from .test_replaced_drivers import check_all_rows_count_once, checkpoint, finish, run
from .world import Driver, World, state_of

pytestmark = pytest.mark.parametrize("world", ["memory"], indirect=True)


def metadata_of(info: CheckpointInfo) -> CheckpointMetadata:
    return open_checkpoint(info.path, open_store).metadata


def sizes_of(metadata: CheckpointMetadata) -> Counter[tuple[int, int]]:
    """Bytes per slot and state id, read by hand: after 5 bytes of head, records of two lengths, a key whose bytes 2 and 3 are the state, a value."""
    found: Counter[tuple[int, int]] = Counter()
    for slot in metadata.slots:
        assert slot.inline is not None
        data, at = slot.inline.data, 5
        while data[at : at + 4] != b"\xff\xff\xff\xff":
            key, value = struct.unpack_from(">II", data, at)
            found[slot.slot, int.from_bytes(data[at + 10 : at + 12], "big")] += 8 + key + value
            at += 8 + key + value
        assert len(data) == at + 16
    return found


def limit(driver: Driver, state_bytes: int, checkpoint_bytes: int, slots_bytes: int = 10 << 20) -> None:
    """As a manifest with these limits; ``slots_bytes`` is what the slots know of the second one."""
    driver.coordinator._durable.inline_limits = InlineLimits(state_bytes=state_bytes, checkpoint_bytes=checkpoint_bytes)
    for service in driver.slots.values():
        service._uploader._inline_max_bytes = slots_bytes


def refused(driver: Driver) -> str:
    outcome = driver.checkpoint()
    assert isinstance(outcome, StatefulSparkError)
    assert not isinstance(outcome, InternalError)
    return str(outcome)


def test_limits_hold_to_the_byte_and_what_they_let_pass_restores(world: World, start: Start, tmp_path: Path) -> None:
    """A state of a slot, and all together, may have the limit and not a byte more; a savepoint has none. Refused, the base stays."""
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(36)]
    driver = start(2)
    run(driver, 12)
    taken = checkpoint(driver)
    metadata = metadata_of(taken)
    sizes = sizes_of(metadata)
    ((slot, state_id), largest), total = sizes.most_common(1)[0], sizes.total()
    assert metadata.inline_bytes == total + 2 * 21, "a head of 5 bytes and an end of 16 per slot"
    assert taken.size_bytes >= metadata.inline_bytes
    assert taken.uploaded_bytes == metadata.inline_bytes
    assert not any(each.files for each in metadata.slots)
    assert {key.rpartition("/")[2].split("-")[0] for key in (info.key for info in world.store.list("chk-1/"))} == {"_metadata", "spark"}
    assert world.store.get("chk-1/_metadata").startswith(b'{"format_version":14,')
    assert verify(taken.path).problems == ()

    limit(driver, largest, total, total)
    assert sizes_of(metadata_of(checkpoint(driver))) == sizes
    limit(driver, largest - 1, total)
    (name,) = (str(state["name"]) for state in metadata.states if state["state_id"] == state_id)
    said = refused(driver)
    assert said.startswith(f"checkpoint 3: state {name!r} of uid 'count' takes ")
    assert f" in slot {slot}, more than stateBackend.memory.maxStateSize = " in said
    assert said.endswith(". Raise it, or use type: filesystem or rocksdb")
    for slots_bytes in (10 << 20, 1):  # also where the slots do not even send what is too much
        limit(driver, largest, total - 1, slots_bytes)
        said = refused(driver)
        assert " in all, more than stateBackend.memory.maxCheckpointSize = " in said
        assert f"; the largest: {name!r} of uid 'count', " in said
    limit(driver, largest, total, 1)
    assert isinstance(driver.checkpoint(), InternalError), "a part that is missing is never published"
    limit(driver, 1, 1)
    savepoint = driver.checkpoint(f"file://{tmp_path}/savepoints")
    assert isinstance(savepoint, CheckpointInfo)
    assert all([file.name for file in each.files] == ["entries"] and each.inline is None for each in metadata_of(savepoint).slots)
    assert driver.coordinator._durable.base_checkpoint_id == 2
    run(driver, 6)
    driver.close()

    driver = start(3)  # checkpoint 2 and a changelog, each slot with parts of both old ones
    base = driver.coordinator._durable.base
    assert base is not None
    assert base.metadata.inline_bytes == metadata.inline_bytes
    driver.start_slot(1)
    finish(driver)
    check_all_rows_count_once(world)


def test_slots_get_the_parts_that_they_need_and_nobody_else_holds_them(world: World, start: Start) -> None:
    """A restore plan has the entries of the old slots with the new one's key groups; retention, which knows all checkpoints, has none."""
    world.retained = 3
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(36)]
    driver = start(4)
    run(driver, 12)
    checkpoint(driver)
    run(driver, 12)
    checkpoint(driver)
    durable = driver.coordinator._durable
    log = driver.coordinator._batches
    for parallelism in (4, 2, 1):
        for slot in range(parallelism):
            plan = durable.restore_plan(slot, parallelism, log)
            assert plan.base is not None
            has = [bool(each.inline and each.inline.data) for each in plan.base.metadata.slots]
            assert has == [not (each.last < plan.first or each.first > plan.last) for each in plan.base.metadata.slots]
    known = durable._retention._retention.retained
    assert len(known) == 2
    assert all(each.inline is not None and not each.inline.data for metadata in known.values() for each in metadata.slots)
    assert [info.size_bytes > metadata.inline_bytes > 0 for info, metadata in zip(durable.completed(), known.values(), strict=True)] == [
        True,
        True,
    ]
    driver.rescale(1)
    finish(driver)
    check_all_rows_count_once(world)


def test_a_driver_that_dies_between_parts(world: World, start: Start) -> None:
    """One slot's part has arrived, the other's never does: no checkpoint, and the next driver goes on from the base and the changelogs."""
    world.input = [(f"key-{n % 9}", 10 * n) for n in range(36)]
    driver = start(2)
    run(driver, 9)
    base = checkpoint(driver)
    run(driver, 9)
    arrived = threading.Event()
    actions = driver.coordinator._service._service._actions
    taken = actions[SnapshotDone.__name__].run

    def first_only(done: SnapshotDone) -> None:
        if done.slot == 0:
            taken(done)
            arrived.set()

    actions[SnapshotDone.__name__] = SnapshotDone.served_by(first_only)
    driver.coordinator.snapshots.request(None)
    driver.coordinator.poll()
    assert arrived.wait(60)
    driver.close()
    assert world.store.head("chk-2/_metadata") is None
    driver = start(2)
    assert driver.coordinator._durable.base_url == base.path
    finish(driver)
    check_all_rows_count_once(world)


def test_checkpoints_with_files_and_with_entries_restore_each_other(world: World, start: Start) -> None:
    """Of filesystem, and so of memory before it had inline checkpoints; and back. A copy in another lineage keeps the entries."""
    world.input = [(f"key-{n % 5}", 10 * n) for n in range(24)]
    path = ""
    for backend in ("filesystem", "memory", "filesystem", "memory"):
        world.backend = backend
        driver = start(2)
        run(driver, 4)
        path = checkpoint(driver).path
        assert {bool(slot.files) for slot in open_checkpoint(path, open_store).metadata.slots} == {backend == "filesystem"}
        driver.close()
    driver = start(1, path)
    copy = driver.coordinator._durable.base
    assert copy is not None
    assert copy.url != path
    assert copy.metadata.inline_bytes == open_checkpoint(path, open_store).metadata.inline_bytes
    finish(driver)
    check_all_rows_count_once(world)


def test_an_error_of_a_limit_is_final_for_who_asked(world: World, start: Start) -> None:
    """Taking it again cannot help, so the caller is not kept waiting."""
    world.input = [(f"key-{n % 5}", 10 * n) for n in range(5)]
    driver = start(1)
    run(driver, 5)
    limit(driver, 1, 1)
    assert isinstance(driver.checkpoint(), InvalidInputError)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_manifest_says_whether_batches_wait_until_a_snapshot_is_written(
    world: World, start: Start, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """``memory.asyncSnapshots`` from the manifest to the slots. Either way the checkpoint has the batch before it, and restores."""
    spec = {
        "job": {"module": "shop.orders"},
        "checkpointing": {"dir": "file:///checkpoints"},
        "stateBackend": {"type": "memory", "memory": {"asyncSnapshots": asynchronous}},
    }
    manifest = validate_job(
        {"apiVersion": "statefulspark.io/v1alpha1", "kind": "StatefulSparkJob", "metadata": {"name": "orders"}, "spec": spec}
    )
    world.async_snapshots = slot_options(manifest)["async_snapshots"]
    world.input = [(f"key-{n % 5}", 10 * n) for n in range(24)]
    driver = start(1)
    run(driver, 8)
    begun, goes_on = threading.Event(), threading.Event()
    begin_snapshot = HeapStore.begin_snapshot

    def begin(store: HeapStore, directory: Path) -> StoreSnapshot:
        snapshot = begin_snapshot(store, directory)

        def write() -> None:
            begun.set()
            assert goes_on.wait(60)
            snapshot.write()

        return StoreSnapshot(write=write)

    with monkeypatch.context() as patched:
        patched.setattr(HeapStore, "begin_snapshot", begin)
        driver.coordinator.snapshots.request(None)
        driver.coordinator.poll()
        assert begun.wait(60)
        batch = threading.Thread(target=run, args=(driver, 8))
        batch.start()
        waiting = 0
        while batch.is_alive() and waiting < 50:
            waiting = waiting + 1 if driver.slots[0]._gate.wanted else 0
            time.sleep(0.002)
        assert batch.is_alive() is not asynchronous
        goes_on.set()
        batch.join(60)
        assert not batch.is_alive()
    while driver.coordinator._durable.base_url is None:
        driver.coordinator.poll()
        time.sleep(0.001)
    driver.close()
    assert sorted(state_of(world, "number")) == sorted(Counter(key for key, _ in world.input[:8]).items())
    finish(start(1))
    check_all_rows_count_once(world)
