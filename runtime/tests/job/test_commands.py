"""Commands that exclude each other name the one in progress, and a stop gives up a batch that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from statefulspark.coordinator.coordinator import Coordinator
from statefulspark.coordinator.core.life import Life
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.query.lifecycle import QueryLifecycle
from statefulspark.errors import ClosedError, ConflictError
from statefulspark.job.run.commands import Commands
from statefulspark.job.run.snapshots import Snapshots


def test_a_command_that_is_refused_names_the_one_in_progress() -> None:
    """The way back to a checkpoint is no rescale."""
    commands = Commands()
    with commands.if_free("the way back to the last checkpoint") as free:
        assert free
        with pytest.raises(ConflictError, match=r"^the way back to the last checkpoint is in progress"), commands.alone("a stop"):
            pass
    with commands.alone("a stop"), commands.if_free("a rescale") as free:
        assert not free
    with commands.in_turn("a cancel"), pytest.raises(ConflictError, match=r"^a cancel is in progress"), commands.alone("a stop"):
        pass


def lifecycle() -> QueryLifecycle:
    """Of a query whose batch never ends."""
    never: Any = SimpleNamespace(finish=lambda: False)
    none: Any = None
    inbox = Inbox(Life(uids=frozenset(), parallelism=1))
    return QueryLifecycle(batches=none, slots=none, location=none, completion=never, inbox=inbox, now_ms=lambda: 0)


def test_a_stop_gives_up_a_batch_that_begins_to_fail() -> None:
    """It takes no snapshot, and does not wait for its time limit."""
    query, asked = lifecycle(), iter([False, False, True])
    stopping = Snapshots(cast("Coordinator", SimpleNamespace(query=query)), lambda: None)
    assert stopping.last(None, 3600.0, gives_up=lambda: next(asked)) is None


def test_a_stop_of_a_job_that_ends_meanwhile_does_not_wait_for_its_batch() -> None:
    """The batch of a failed job does not end."""
    query, steps = lifecycle(), iter([None, None, ClosedError("the job has ended (FAILED)")])

    def check_open() -> None:
        if (error := next(steps)) is not None:
            raise error

    with pytest.raises(ClosedError):
        Snapshots(cast("Coordinator", SimpleNamespace(query=query)), check_open).last(None, 3600.0)
    assert not query.paused
