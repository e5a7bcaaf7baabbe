"""The state of single keys of a real job: found by Spark's own hash, through the slot that owns the key."""

from __future__ import annotations

import os
import signal

import pytest

from statefulspark.coordinator.query.queried_state import StateQuery
from statefulspark.errors import ClosedError, InvalidInputError, UnavailableError
from statefulspark.job.run.running import RunningJob

from .oracles import by, counted, files, finals
from .work import Work, wait_until


def totals(job: RunningJob, keys: list[str]) -> list[tuple[str, int]]:
    """The totals of keys that have one."""
    found = [(key, job.queries.read(StateQuery(uid="count", state="total", key=key)).entries) for key in keys]
    return sorted((key, entries[0].value) for key, entries in found if entries)


def served(job: RunningJob, keys: list[str], wanted: list[tuple[str, int]]) -> bool:
    """True if the job answers with what is wanted; False while a slot is being replaced."""
    try:
        return totals(job, keys) == wanted
    except UnavailableError:
        return False


def test_every_key_is_found_where_it_lives(work: Work) -> None:
    """Each account has its total after the last batch although the job is idle, also after a slot was killed and after the job was rescaled."""
    inputs = files(seed=31, number=2)
    for rows in inputs:
        work.write(rows)
    wanted = finals(counted(by("account", inputs)), 2)
    keys = [*(key for key, _ in wanted), "nobody"]
    job = work.start()
    work.wait_rows(sum(map(len, inputs)), 150)
    wait_until(lambda: served(job, keys, wanted), 150, "the totals are committed")
    assert {(state.uid, state.name, state.kind) for state in job.queries.states()} >= {
        ("count", "total", "value"),
        ("count", "number", "value"),
    }
    assert {slot for key in keys for slot in [job.queries.read(StateQuery(uid="count", state="total", key=key)).slot]} == {0, 1}
    for wrong, named in ((("other", "total"), "count"), (("count", "totl"), "total")):
        with pytest.raises(InvalidInputError) as refused:
            job.queries.read(StateQuery(uid=wrong[0], state=wrong[1], key="a"))
        assert named in (refused.value.remedy or "")

    victim = job.status().slots[0].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: served(job, keys, wanted), 150, "the slot is back")
    job.rescale(3, 150)
    wait_until(lambda: served(job, keys, wanted), 150, "three slots serve")
    job.stop(savepoint=False, target=None, drain=False, timeout_s=150)
    with pytest.raises(ClosedError):
        job.queries.read(StateQuery(uid="count", state="total", key=keys[0]))
