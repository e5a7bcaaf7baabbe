"""Random lives of a job through every event, with changelogs alone, in groups and both in one batch: what a dict counts is in output and state."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from runtime.tests.depth import examples, left_to_test_all

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.changelog_group import is_group
from statefulspark.checkpoint.gc.collecting import collect_garbage
from statefulspark.errors import CorruptDataError
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
    PAUSE_DRIVER,
    RESCALE,
    RETRY_BATCH,
    SAVEPOINT,
    TestingJob,
)

from .test_recovery_scenarios import Count

USERS = [f"user-{number}" for number in range(7)]
THRESHOLDS = (0, 300, 1 << 20)
"""None, some and all changelogs of these jobs are sent to the driver."""


def _event(random: Random, slot: int, checkpoints: int) -> Any:
    events = [
        BATCH,
        CHECKPOINT,
        SAVEPOINT,
        RETRY_BATCH,
        KILL_DRIVER,
        KILL_DRIVER_BEFORE_SINK_COMMIT,
        KILL_DRIVER_AFTER_SINK_COMMIT,
        RESCALE(random.randint(1, 4)),
        FAIL_STORAGE(random.randint(1, 2), random.choice(["request", "answer"])),
        *(KILL_SLOT(slot, when) for when in ("idle", "before_changelog", "before_ack", "after_ack")),
    ]
    return random.choice([*events, DAMAGE_CHECKPOINT] if checkpoints > 1 else events)


def _live(job: TestingJob, random: Random, batches: int) -> tuple[Counter[str], bool]:
    """Run random rows, events and thresholds; returns how often each user came, and whether a checkpoint was damaged."""
    seen: Counter[str] = Counter()
    checkpoints, damaged = 0, False
    for _ in range(batches):
        if random.random() < 0.3:  # counts for drivers that start from now on
            job._job.inline_limits = replace(job._job.inline_limits, changelog_bytes=random.choice(THRESHOLDS))
        users = random.choices(USERS, k=random.randint(1, 6))
        event = _event(random, job.slot_of(users[0]), checkpoints)
        checkpoints = 0 if event is DAMAGE_CHECKPOINT else checkpoints + (event is CHECKPOINT)
        damaged = damaged or event is DAMAGE_CHECKPOINT
        seen.update(users)
        job.run([*((user, 10) for user in users), event, *([KILL_DRIVER] if event is DAMAGE_CHECKPOINT else [])])
    return seen, damaged


@pytest.mark.parametrize(
    ("backend", "seed"),
    [
        ("memory", 1),
        ("rocksdb", 3),
        *left_to_test_all((backend, seed) for seed in range(4, 24) for backend in ("memory", "rocksdb")),
    ],
)
def test_what_is_counted_is_what_came(backend: str, seed: int) -> None:
    """Each row counts once, whatever dies or fails in or between batches; garbage collection finds nothing missing."""
    random = Random(seed)
    with TestingJob(
        Count(), "user STRING, at BIGINT", "user STRING, count BIGINT", key="user", event_time="at", backend=backend, max_parallelism=8
    ) as job:
        seen, damaged = _live(job, random, examples(16, 25))
        job.run([PAUSE_DRIVER])
        assert sorted(job.output) == sorted((user, number + 1) for user, count in seen.items() for number in range(count))
        assert job.state("count") == dict(seen)
        with suppress(CorruptDataError) if damaged else nullcontext():
            assert collect_garbage(job._job.store.url, open_store=open_store, older_than_s=86_400, dry_run=True).missing == {}


@pytest.mark.parametrize("when", ["before_changelog", "before_ack", "after_ack"])
def test_a_slot_dies_while_changelogs_are_grouped(when: Any, changelog_inline_threshold: int) -> None:
    """The driver has the changelog of the dead slot or not, and stores one object for the batch."""
    with TestingJob(
        Count(), "user STRING, at BIGINT", "user STRING, count BIGINT", key="user", event_time="at", parallelism=3, max_parallelism=8
    ) as job:
        given = job.run([*((user, 10) for user in USERS), KILL_SLOT(job.slot_of(USERS[0]), when)])
        assert sorted(given) == [(user, 1) for user in USERS]
        store = job._job.store
        objects = [info.key for info in store.list(paths.CHANGELOG_PREFIX)]
        assert any(is_group(store.get(key)) for key in objects) == bool(changelog_inline_threshold)
        assert sorted(job.run([KILL_DRIVER, *((user, 10) for user in USERS)])) == [(user, 2) for user in USERS]
        assert job.state("count") == dict.fromkeys(USERS, 2)
