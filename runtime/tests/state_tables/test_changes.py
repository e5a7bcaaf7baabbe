"""Changes of names, checked against the states of a savepoint and applied to every place of its metadata that names them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from statefulspark import Types
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, SlotState
from statefulspark.checkpoint.formats.pipeline import TICKS, WIDENED, KeyColumn, Pipeline, SourceId, SparkStep, StepKey
from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state_tables.write.changed_metadata import changed_metadata, known_uids, removed_ids
from statefulspark.state_tables.write.changes import Changes


def _info(state_id: int, uid: str, name: str, kind: str = "value") -> StateInfo:
    return StateInfo(state_id, uid, name, kind, [Types.STRING().to_json()], Types.LONG().to_json())


INFOS = [
    _info(1, "orders", "cart"),
    _info(2, "orders", "seen"),
    _info(3, "orders", "event-timers", "event-timers"),
    _info(4, "users", "cart"),
    _info(5, "windows", "_window(TimeWindow, reduced)", "map"),
    _info(6, "windows", "event-timers", "event-timers"),
    _info(7, "users", "_raw_keyed", "raw-keyed"),
    _info(8, "orders", "_window.rates"),
    _info(9, "users", "_reduce", "reducing"),
    _info(10, "windows", "_count"),
]
UIDS = {"orders", "users", "windows", "stateless"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(uids={"ordres": "x"}), "no uid 'ordres'.*Use one of: orders, stateless, users, windows"),
        (Changes(removed_uids=frozenset({"x"})), "no uid 'x'"),
        (Changes(states={("x", "cart"): "y"}), "no uid 'x'"),
        (Changes(states={("orders", "crat"): "y"}), "no state 'crat'.*_window.rates, cart, event-timers, seen"),
        (Changes(removed_states=frozenset({("users", "seen")})), "no state 'seen'"),
        (Changes(uids={"orders": "users"}), "two steps would have the uid 'users'"),
        (Changes(uids={"orders": "stateless"}), "two steps would have the uid 'stateless'"),
        (Changes(uids={"orders": "x", "users": "x"}), "two steps would have the uid 'x'"),
        (Changes(states={("orders", "cart"): "seen"}), "two states of uid 'orders' would be named 'seen'"),
        (Changes(uids={"orders": ""}), "1 to 200 characters"),
        (Changes(uids={"orders": "x" * 201}), "1 to 200 characters"),
        (Changes(states={("orders", "cart"): "é" * 128}), "1 to 255 bytes"),
        (Changes(states={("orders", "cart"): ""}), "1 to 255 bytes"),
        (Changes(states={("orders", "cart"): "processing-timers"}), "reserved"),
        (Changes(states={("orders", "cart"): "_sessions(x)"}), "reserved"),
        (Changes(states={("orders", "event-timers"): "alarms"}), "the runtime names 'event-timers'"),
        (Changes(states={("users", "_raw_keyed"): "raw"}), "the runtime names '_raw_keyed'"),
        (Changes(states={("windows", "_window(TimeWindow, reduced)"): "w"}), "the runtime names"),
        (Changes(removed_states=frozenset({("windows", "_window(TimeWindow, reduced)")})), "belong together.*Remove the uid"),
        (Changes(removed_states=frozenset({("windows", "event-timers")})), "belong together"),
        (Changes(uids={"orders": "x"}, removed_uids=frozenset({"orders"})), "both renamed and removed"),
        (Changes(states={("orders", "cart"): "x"}, removed_states=frozenset({("orders", "cart")})), "both renamed and removed"),
        (Changes(states={("orders", "cart"): "x"}, removed_uids=frozenset({"orders"})), "removed with all its states"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_names_there_are(changes: Changes, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        changes.check(UIDS, INFOS)


@pytest.mark.parametrize(
    "changes",
    [
        Changes(uids={"orders": "users", "users": "orders"}),
        Changes(uids={"orders": "users"}, removed_uids=frozenset({"users"})),
        Changes(states={("orders", "cart"): "seen", ("orders", "seen"): "cart"}),
        Changes(states={("orders", "cart"): "seen"}, removed_states=frozenset({("orders", "seen")})),
        Changes(removed_states=frozenset({("orders", "event-timers"), ("users", "_raw_keyed")})),
        Changes(uids={"orders": "x" * 200}),
        Changes(states={("orders", "_window.rates"): "rates", ("users", "_reduce"): "total", ("windows", "_count"): "count"}),
        Changes(removed_states=frozenset({("orders", "_window.rates"), ("users", "_reduce"), ("windows", "_count")})),
        Changes(states={("orders", "cart"): "_cart"}),
    ],
)
def test_names_may_be_swapped_and_those_of_removed_ones_used_again(changes: Changes) -> None:
    changes.check(UIDS, INFOS)


def _metadata() -> CheckpointMetadata:
    key = (KeyColumn(name="user", type="string"),)
    sources = (
        SourceId(provider="json", identity="12345678", label="json /in", feeds="orders", number=0),
        SourceId(provider=TICKS, identity="orders", label="ticks of 'orders'", feeds="orders", number=1),
        SourceId(provider="json", identity="12345678", label="json /in", feeds="users", number=0),
        SourceId(provider=TICKS, identity="users", label="ticks of 'users'", feeds="users", number=2),
    )
    return CheckpointMetadata(
        job_id="shop",
        job_name="shop",
        checkpoint_id=1,
        kind="savepoint",
        attempt=1,
        batch=7,
        max_parallelism=4,
        parallelism=1,
        created_ms=1,
        duration_ms=1,
        states=tuple(info.to_json() for info in INFOS),
        slots=(SlotState(slot=0, first=0, last=3, backend="rocksdb", operator_batches={"orders": 7, "users": 6, "windows": 7}),),
        watermarks={"orders": 5, "users": None, "stateless": 9},
        second_watermarks={"orders": 4},
        event_times_by_value={"orders": ({'{"site":1}': 5}, {})},
        pipeline=Pipeline(
            steps=tuple(StepKey(uid=uid, hashing=WIDENED, columns=key) for uid in ("orders", "users", "windows")),
            sources=sources,
            spark_steps=(SparkStep(name="dropDuplicates", reads=("json /in (12345678)", "ticks of 'orders'", "ticks of 'users'")),),
        ),
    )


def _texts(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {text for each in value.values() for text in _texts(each)}
    if isinstance(value, list):
        return {text for each in value for text in _texts(each)}
    return {value} if isinstance(value, str) else set()


def test_every_place_that_names_a_uid_has_the_new_one() -> None:
    """The oracle replaces texts in the JSON; the product knows the fields."""
    metadata = _metadata()
    assert known_uids(metadata) == UIDS
    found = changed_metadata(metadata, Changes(uids={"orders": "zoo", "users": "carts"}))
    text = metadata.model_dump_json()
    for old, new in (("orders", "zoo"), ("users", "carts")):
        text = text.replace(f'"{old}"', f'"{new}"').replace(f"'{old}'", f"'{new}'")
    expected = json.loads(text)
    expected["pipeline"]["spark_steps"][0]["reads"].sort()
    assert json.loads(found.model_dump_json()) == expected
    assert removed_ids(metadata, Changes(uids={"orders": "zoo"})) == frozenset()


def test_nothing_names_a_removed_uid_and_the_places_of_its_sources_stay() -> None:
    metadata = _metadata()
    changes = Changes(removed_uids=frozenset({"orders"}), removed_states=frozenset({("users", "_raw_keyed")}))
    found = changed_metadata(metadata, changes)
    assert not {text for text in _texts(json.loads(found.model_dump_json())) if "orders" in text}
    assert removed_ids(metadata, changes) == {1, 2, 3, 7, 8}
    assert [state["state_id"] for state in found.states] == [4, 5, 6, 9, 10]
    assert found.pipeline is not None
    assert [(each.provider, each.number) for each in found.pipeline.sources] == [("json", 0), (TICKS, 1), ("json", 0), (TICKS, 2)]
    assert known_uids(found) == UIDS - {"orders"}


def test_states_are_renamed_within_their_uid_and_keep_their_ids() -> None:
    found = changed_metadata(_metadata(), Changes(uids={"users": "carts"}, states={("users", "cart"): "content"}))
    named = {state["state_id"]: (state["uid"], state["name"]) for state in found.states}
    assert named[4] == ("carts", "content")
    assert named[1] == ("orders", "cart")
    assert named[7] == ("carts", "_raw_keyed")
