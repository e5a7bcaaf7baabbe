"""A job in miniature: slots with real uploads, changelogs, records and checkpoints, and a dict that knows what must come out.

It does what the coordinator and the slots do, in one thread and without Spark. The oracle is one dict over all key groups per
batch, which never goes through any of the code under test.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from statefulspark.checkpoint.catalog import checkpoint_ids
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import encode_bundle
from statefulspark.checkpoint.formats.changelog import ChangelogHeader, ChangelogWriter
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, FileRef
from statefulspark.checkpoint.formats.records import BatchRecord, ChangelogRef
from statefulspark.checkpoint.lineage.fencing import refuse_fenced
from statefulspark.checkpoint.lineage.identity import ensure_job
from statefulspark.checkpoint.lineage.lineage import Lineage, begin_attempt, resolve, write_record
from statefulspark.checkpoint.restore.local_files import LocalFiles
from statefulspark.checkpoint.restore.plan_message import SlotRestore
from statefulspark.checkpoint.restore.progress import RestoreProgress
from statefulspark.checkpoint.restore.slot import RestoredSlot, RestorePlan, restore_slot
from statefulspark.checkpoint.write.publish import publish
from statefulspark.checkpoint.write.upload import SlotUploader
from statefulspark.keygroups import KeyGroupRange, key_group_range
from statefulspark.state.store.base import Change, KeyValueStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

UID = "u"
STATES: tuple[dict[str, Any], ...] = ({"state_id": 1, "uid": UID, "name": "n", "kind": "value"},)

OpenState = Callable[[Path], KeyValueStore]


@dataclass
class Slot:
    """A slot's store and uploader."""

    store: KeyValueStore
    uploader: SlotUploader
    key_groups: KeyGroupRange
    restored: RestoredSlot


@dataclass
class Miniature:
    """One driver and its slots."""

    job: ObjectStore
    folder: Path
    open_state: OpenState
    max_parallelism: int = 8
    backend: str = "dict"
    slots: list[Slot] = field(default_factory=list)
    base_id: int | None = None
    lineage: Lineage | None = None
    acks: list[ChangelogRef] = field(default_factory=list)
    started: int = 0
    states: tuple[dict[str, Any], ...] = STATES
    open_store: Callable[[str], ObjectStore] = open_store
    leftovers: tuple[Path, ...] = ()
    """Folders that slots have left on the machine, from which slots link."""

    def start(self, parallelism: int, *, origin: str | None = None, damaged: tuple[str, ...] = (), claims: bool = False) -> int:
        """Start a driver with its slots; returns the last committed batch, which the slots are restored to."""
        for slot in self.slots:
            slot.store.close()
        ensure_job(self.job, "flights", self.max_parallelism)
        self.lineage = begin_attempt(self.job, now_ms=0, origin=origin, open_store=self.open_store, damaged=damaged, claim_origin=claims)
        self.slots = [self._restore(slot, parallelism, self.lineage) for slot in range(parallelism)]
        base = self.lineage.base
        own = base is not None and base.store.url == self.job.url
        self.base_id = base.metadata.checkpoint_id if base is not None and own else None
        self.acks = []
        return self.lineage.committed_batch

    def _restore(self, slot: int, parallelism: int, lineage: Lineage) -> Slot:
        key_groups = key_group_range(slot, parallelism, self.max_parallelism)
        plan = RestorePlan(
            store=self.job,
            base=lineage.base,
            changelogs=lineage.changelogs,
            batch=lineage.committed_batch,
            key_groups=key_groups,
            max_parallelism=self.max_parallelism,
            backend=self.backend,
        )
        self.started += 1
        plan = SlotRestore.model_validate_json(SlotRestore.of(plan).model_dump_json()).plan(self.job, self.open_store)
        progress = RestoreProgress()
        folder, local = self.folder / f"slot-{self.started}", LocalFiles(self.leftovers)
        restored = restore_slot(plan, folder, self.open_state, threads=2, progress=progress, local=local)
        done = progress.read()
        assert done is not None
        assert (done.downloaded_bytes, done.local_bytes) == (restored.downloaded_bytes, restored.local_bytes)
        assert done.downloaded_bytes + done.local_bytes == done.total_bytes, "the total was known before"
        uploader = SlotUploader(self.job, slot=slot, key_groups=key_groups, backend=self.backend, threads=2)
        if restored.base_checkpoint_id is not None:
            uploader.seed(restored.base_checkpoint_id, restored.uploaded)
        return Slot(restored.store, uploader, key_groups, restored)

    @property
    def attempt(self) -> int:
        """Number of the running attempt."""
        assert self.lineage is not None
        return self.lineage.attempt

    def check_fence(self) -> None:
        """Raise when another driver was started since."""
        assert self.lineage is not None
        assert self.lineage.claim is not None
        refuse_fenced(self.job, self.lineage.claim)

    def begin(self, batch: int) -> None:
        """Write the record of a batch unless the lineage has it: it proves that the batch before is committed."""
        assert self.lineage is not None
        if batch != self.lineage.uncommitted_batch:
            write_record(
                self.job,
                BatchRecord(
                    attempt=self.attempt,
                    batch=batch,
                    previous=batch - 1,
                    processing_time_ms=1_000 * batch,
                    watermarks={UID: batch},
                    acks=tuple(self.acks),
                    files=encode_bundle({f"offsets/{batch}": b"{}"}),
                ),
                self.check_fence,
            )
        self.acks = []

    def run(self, batch: int, changes: list[Change]) -> None:
        """Process a batch: every slot writes its changelog and applies its changes."""
        for number, slot in enumerate(self.slots):
            self.started += 1
            path = self.folder / f"changelog-{self.started}"
            header = ChangelogHeader(
                uid=UID,
                slot=number,
                batch=batch,
                epoch=1,
                first_key_group=slot.key_groups.first,
                last_key_group=slot.key_groups.last,
                states=self.states,
            )
            mine = [change for change in changes if int.from_bytes(change[0][:2], "big") in slot.key_groups]
            writer = ChangelogWriter(path, header)
            writer.append(mine)
            digest = writer.close()
            key = paths.changelog_key(self.attempt, batch, UID, number, 1)
            self.job.put_file(key, path)
            self.acks.append(
                ChangelogRef(
                    uid=UID,
                    slot=number,
                    first=slot.key_groups.first,
                    last=slot.key_groups.last,
                    batch=batch,
                    epoch=1,
                    key=key,
                    size_bytes=digest.size_bytes,
                    checksum=digest.checksum,
                )
            )
            slot.store.write(mine)

    def checkpoint(
        self, batch: int, *, publish_it: bool = True, number: int | None = None, nonce: str | None = None, created_ms: int = 1
    ) -> CheckpointMetadata:
        """Take a checkpoint of the slots as they are; without publication it is one that was given up."""
        ids = checkpoint_ids(self.job)
        checkpoint_id = number or (ids[-1] + 1 if ids else 1)
        bundle_name = paths.bundle_name(nonce) if nonce is not None else "spark-location"
        nonce = nonce or paths.new_nonce()
        states = []
        for slot in self.slots:
            self.started += 1
            snapshot = self.folder / f"snapshot-{self.started}"
            slot.store.begin_snapshot(snapshot).write()
            state, _ = slot.uploader.upload(
                snapshot, checkpoint_id, nonce=nonce, base_checkpoint_id=self.base_id, step_batches={UID: batch}
            )
            states.append(state)
            shutil.rmtree(snapshot)
        bundle = encode_bundle({f"offsets/{batch}": b"{}", f"commits/{batch}": b"{}"} if batch >= 0 else {})
        self.job.put(f"{paths.checkpoint_folder(checkpoint_id)}/{bundle_name}", bundle)
        digest = digest_bytes(bundle)
        metadata = CheckpointMetadata(
            job_id="flights",
            job_name="flights",
            checkpoint_id=checkpoint_id,
            kind="checkpoint",
            attempt=self.attempt,
            batch=batch,
            max_parallelism=self.max_parallelism,
            parallelism=len(self.slots),
            created_ms=created_ms,
            duration_ms=1,
            states=self.states,
            slots=tuple(states),
            spark_location=FileRef(name="spark-location", path=bundle_name, size_bytes=digest.size_bytes, checksum=digest.checksum),
        )
        if publish_it:
            publish(self.job, metadata)
            self.base_id = checkpoint_id
        return metadata

    def savepoint(self, target: ObjectStore, folder: str, batch: int, *, common: ObjectStore | None = None) -> str:
        """Take a savepoint of the slots as they are."""
        states = []
        for slot in self.slots:
            self.started += 1
            snapshot = self.folder / f"snapshot-{self.started}"
            slot.store.begin_snapshot(snapshot).write()
            state, _ = slot.uploader.upload_savepoint(
                snapshot, target, folder, base_checkpoint_id=self.base_id, step_batches={UID: batch}, common=common
            )
            states.append(state)
        metadata = CheckpointMetadata(
            job_id="flights",
            job_name="flights",
            checkpoint_id=99,
            kind="savepoint",
            attempt=self.attempt,
            batch=batch,
            max_parallelism=self.max_parallelism,
            parallelism=len(self.slots),
            created_ms=1,
            duration_ms=1,
            states=self.states,
            slots=tuple(states),
        )
        return publish(target, metadata, folder)

    def contents(self) -> dict[bytes, bytes]:
        """Everything in the slots' stores, each read within its key groups and checked to hold nothing else."""
        found: dict[bytes, bytes] = {}
        for slot in self.slots:
            mine = dict(slot.store.scan(slot.key_groups.first.to_bytes(2, "big"), (slot.key_groups.last + 1).to_bytes(2, "big")))
            assert mine == dict(slot.store.scan(b"", b"\xff" * 8))
            found |= mine
        return found

    def lineage_now(self) -> Lineage:
        """What a driver that started now would go on from."""
        return resolve(self.job, open_store=self.open_store)


def apply(state: dict[bytes, bytes], changes: list[Change]) -> dict[bytes, bytes]:
    """The oracle: a state after a batch's changes."""
    after = dict(state)
    for key, value in changes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after
