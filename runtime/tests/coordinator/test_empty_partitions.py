"""Partitions without rows: they account for the slots that had none, and for no others."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.manifest import validate_job
from statefulspark.coordinator.core.empty_partitions import EmptyPartitions
from statefulspark.job.spark.session import session_settings
from statefulspark.rpc.messages.batches import PartitionRun


@given(
    slots=st.integers(1, 6),
    tasks=st.integers(1, 6),
    rowless=st.sets(st.integers(0, 5)),
    shift=st.integers(0, 3),
    seed=st.integers(0, 999),
)
def test_they_account_for_all_slots_only_when_all_were_computed(slots: int, tasks: int, rowless: set[int], shift: int, seed: int) -> None:
    """Tasks compute several partitions, fail half-way and run again; an earlier execution computed a part only."""
    chance = Random(seed)
    empty = EmptyPartitions()
    without = {slot for slot in range(slots) if slot in rowless}
    done: set[int] = set()
    number = 0
    for slot in range(chance.randrange(slots)):  # the sink takes a few rows first
        number += 1
        empty = empty.with_report("u", PartitionRun("1", slot, number)) if slot in without else empty.with_begun("u", slot)
    computed_by = [[slot for slot in range(slots) if slot % tasks == task] for task in range(tasks)]
    last = [slot for mine in computed_by for slot in mine][-1]
    for task, mine in enumerate(computed_by):
        for end in (*([chance.randrange(len(mine))] if mine and chance.random() < 0.5 else []), len(mine)):
            number += 1
            for slot in mine[:end]:
                if slot in without:
                    empty = empty.with_report("u", PartitionRun("2", task + shift, number))
                else:
                    empty = empty.with_begun("u", slot)
                    done.add(slot)
                left = set(range(slots)) - done
                if end < len(mine) or slot != last:
                    # Not all partitions were computed, so either the count is short, or it is right: all that are left had no rows.
                    assert not empty.account_for("u", left) or left <= without
    assert empty.account_for("u", set(range(slots)) - done)


@pytest.mark.parametrize("given_rules", ["", "org.example.Rule"])
def test_steps_without_new_input_keep_their_partitions(tmp_path: Path, given_rules: str) -> None:
    """Spark would optimize them away, so none of their partitions would report; rules that the user excludes stay excluded."""
    document = {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "job"},
        "spec": {
            "job": {"script": "job.py"},
            "checkpointing": {"dir": "file:///checkpoints"},
            "sparkConf": {"spark.sql.optimizer.excludedRules": given_rules} if given_rules else {},
        },
    }
    rules = session_settings(validate_job(document), "local[2]", 1)["spark.sql.optimizer.excludedRules"].split(",")
    assert rules[-1].endswith(".PropagateEmptyRelation")
    assert rules[:-1] == ([given_rules] if given_rules else [])


def test_a_slot_that_has_begun_is_not_accounted_for() -> None:
    """Its rows count when it acknowledges them, however many partitions without rows there are."""
    empty = EmptyPartitions()
    for partition in range(5):
        empty = empty.with_report("u", PartitionRun("1", partition, partition))
    empty = empty.with_begun("u", 1)
    assert empty.account_for("u", {0})
    assert not empty.account_for("u", {0, 1})
    assert not empty.account_for("v", {0})
