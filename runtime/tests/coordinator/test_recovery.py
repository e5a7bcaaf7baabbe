"""From what is stored to what a new attempt knows of the job's states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.checkpoint.test_source_offsets import fed, location

from statefulspark.checkpoint.formats.bundle import encode_bundle
from statefulspark.checkpoint.formats.pipeline import Pipeline
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.spark.stored_location import location_files
from statefulspark.coordinator.batches.changelogs import BatchChangelogs
from statefulspark.coordinator.durable.recovery import batch_log, state_registry
from statefulspark.errors import NotRestorableError
from statefulspark.state.registry import StateRegistry
from statefulspark.storage.open import open_store

LONG: dict[str, Any] = {"key_type": [{"type": "STRING"}], "type": {"type": "LONG"}}


@pytest.fixture
def restored(tmp_path: Path) -> StateRegistry:
    """The states of a job with u.a and u.b in its checkpoint; since then u.b lives longer and v.a was first used."""
    lineage, mini = two_batches_after_a_checkpoint(tmp_path)
    return state_registry(lineage, mini.job, changelogs=BatchChangelogs(mini.job, lineage, 8))


def two_batches_after_a_checkpoint(tmp_path: Path) -> tuple[Lineage, Miniature]:
    """A checkpoint of batch 0 and the records of batches 1 and 2."""
    (tmp_path / "local").mkdir()
    mini = Miniature(open_store((tmp_path / "flights").as_uri()), tmp_path / "local", DictStore)
    before = StateRegistry()
    for name, ttl_ms in (("a", None), ("b", 5)):
        before.register("u", name, "value", LONG | {"ttl_ms": ttl_ms})
    mini.states = tuple(state.to_json() for state in before.states())
    mini.start(2)
    mini.begin(0)
    mini.run(0, [])
    mini.checkpoint(0)
    before.register("u", "b", "value", LONG | {"ttl_ms": 6})
    before.register("v", "a", "list", LONG | {"ttl_ms": None})
    mini.states = tuple(state.to_json() for state in before.states())
    mini.begin(1)
    mini.run(1, [])
    mini.begin(2)
    return mini.lineage_now(), mini


def test_a_change_of_sources_that_a_record_has_made_is_repeated(tmp_path: Path) -> None:
    """A job that an older release started with it restores, although a job could not make the change today."""
    lineage, _ = two_batches_after_a_checkpoint(tmp_path)
    old, new = fed("json A > s", "kafka D > s"), fed("kafka B > s", "json C > t")
    changes: tuple[dict[str, Any], ...] = (
        {"pipeline": Pipeline(sources=old), "files": encode_bundle(location(old))},
        {"pipeline": Pipeline(sources=new)},
    )
    records = tuple(record.model_copy(update=change) for record, change in zip(lineage.records, changes, strict=True))
    files, sources = location_files(replace(lineage, base=None, records=records))
    assert (sources, files["offsets/5"].decode().split("\n")[2:]) == (new, ['{"D": 5}', '{"A": 5}'])


def test_event_times_of_a_second_input_go_with_it(tmp_path: Path) -> None:
    """The next second input is another one, and has no watermark before its first row."""
    lineage, _ = two_batches_after_a_checkpoint(tmp_path)
    stored = {"max_event_times": {"a": 5, "b": 6}, "second_max_event_times": {"a": 7, "b": 8}}
    lineage = replace(lineage, records=(*lineage.records[:-1], lineage.records[-1].model_copy(update=stored)))
    log = batch_log(lineage, {"a": (0,), "b": (0, 0)})
    assert (log.watermark("a"), log.watermark("b")) == (5, 6)
    assert log.event_times.of_input(1) == {"b": 8}


@pytest.mark.parametrize(
    ("checkpoint_ms", "record_ms", "known_ms"),
    [
        (None, [], None),
        (None, [10], None),
        (None, [10, 11], 10),
        (5, [], 5),
        (5, [10], 5),
        (5, [10, 11], 10),
        (12, [10], 10),
        (12, [10, 11], 10),
    ],
)
def test_the_clock_of_the_last_committed_batch(
    tmp_path: Path, checkpoint_ms: int | None, record_ms: list[int], known_ms: int | None
) -> None:
    """The last record's batch may not be committed, so cleanup never goes by its time, nor by that of a checkpoint that was triggered later."""
    lineage, _ = two_batches_after_a_checkpoint(tmp_path)
    base, records = lineage.base, lineage.records
    assert base is not None
    base = replace(base, metadata=base.metadata.model_copy(update={"processing_time_ms": None, "created_ms": checkpoint_ms}))
    stamped = [record.model_copy(update={"processing_time_ms": time}) for record, time in zip(records, record_ms, strict=False)]
    lineage = replace(lineage, base=base if checkpoint_ms is not None else None, records=tuple(stamped))
    assert batch_log(lineage, {}).committed_time_ms == known_ms


def test_states_of_checkpoint_and_changelogs(restored: StateRegistry) -> None:
    """Numbers stay, what changelogs say is newer than the checkpoint, and new states get new numbers."""
    found = [(state.state_id, state.uid, state.name, state.kind, state.ttl_ms) for state in restored.states()]
    assert found == [(1, "u", "a", "value", None), (2, "u", "b", "value", 6), (3, "v", "a", "list", None)]
    assert restored.register("w", "a", "value", LONG | {"ttl_ms": None}).state_id == 4


def test_a_time_to_live_that_changed_is_taken_over(restored: StateRegistry) -> None:
    """The next checkpoint says what the code says."""
    restored.register("u", "b", "value", LONG | {"ttl_ms": 7})
    assert [state.ttl_ms for state in restored.states() if state.name == "b"] == [7]


@pytest.mark.parametrize(
    ("kind", "description", "said"),
    [
        ("list", LONG | {"ttl_ms": None}, "stored as value, but the job declares list"),
        ("value", LONG | {"type": {"type": "STRING"}, "ttl_ms": None}, "LONG +STRING +of another kind"),
    ],
)
def test_a_state_that_changed_is_refused_by_name(restored: StateRegistry, kind: str, description: dict[str, Any], said: str) -> None:
    """Restored state is not handed to code that would misread it; the error names state and uid."""
    with pytest.raises(NotRestorableError, match=said) as raised:
        restored.register("u", "a", kind, description)
    assert raised.value.field == "state 'a' of uid 'u'"


def test_a_new_state_is_in_doubt_until_every_slot_has_opened(restored: StateRegistry) -> None:
    """Until then another slot may still declare what seems to be missing; v.a is no matter of u's."""
    restored.register("v", "z", "value", LONG | {"ttl_ms": None})
    doubts = [restored.in_doubt]
    restored.register("v", "a", "list", LONG | {"ttl_ms": None})
    assert [*doubts, restored.in_doubt] == [True, False]
    restored.register("u", "a", "value", LONG | {"ttl_ms": None})
    assert [state.name for state in restored.all_opened()] == ["b"]
    assert restored.all_opened() == []
    with pytest.raises(NotRestorableError, match=r"^state 'bb' of uid 'u'.*restored state 'b' is no longer declared"):
        restored.register("u", "bb", "value", LONG | {"ttl_ms": None})
    assert [state.name for state in restored.states()] == ["a", "b", "a", "z"]


def test_the_closest_name_is_suggested() -> None:
    """Of several missing states."""
    old = StateRegistry()
    for name in ("count", "total", "last_seen"):
        old.register("u", name, "value", LONG | {"ttl_ms": None})
    registry = StateRegistry(old.states())
    registry.register("u", "totl", "value", LONG | {"ttl_ms": None})
    with pytest.raises(NotRestorableError, match=r"'count', 'last_seen', 'total' is no longer declared\. Declare it as 'total'"):
        registry.all_opened()
