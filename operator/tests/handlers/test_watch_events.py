"""What watches deliver, and what they miss: the mirror ends up with what is there, whatever was lost in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark_operator.handlers.watch_events import WatchEventHandler
from statefulspark_operator.handlers.watch_health import WatchHealth, WatchResponse
from statefulspark_operator.reconcile.object_cache import ObjectCache
from statefulspark_operator.reconcile.reconciler import WorkKey

KINDS = {"StatefulSparkJob": "statefulsparkjobs", "StateSnapshot": "statesnapshots", "Pod": "pods"}
Event = tuple[str, str, str, bool, bool]
"""Kind, namespace, name, whether it exists afterwards, and whether the watch delivers the event."""


def tree(kind: str, namespace: str, name: str, version: int) -> dict[str, Any]:
    labels = {"statefulspark.io/job": "a"}
    metadata = {"name": name, "namespace": namespace, "uid": f"{kind}-{namespace}-{name}-{version}", "resourceVersion": str(version)}
    return {"kind": kind, "metadata": metadata | {"labels": labels}, "spec": {"jobReference": {"name": "a"}}}


class Objects:
    """The objects of a cluster, as `Cluster.uids` tells them."""

    def __init__(self) -> None:
        self.present: dict[tuple[str, str, str], dict[str, Any]] = {}

    async def uids(self, api_version: str, kind: str, namespace: str | None, selector: str) -> frozenset[str]:
        found = [each for (of, where, _), each in self.present.items() if of == kind and namespace in (None, where)]
        return frozenset(each["metadata"]["uid"] for each in found)


@given(
    events=st.lists(
        st.tuples(st.sampled_from(list(KINDS)), st.sampled_from("xy"), st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=30
    ),
    everywhere=st.booleans(),
)
def test_after_a_relist_the_mirror_holds_what_is_there(events: list[Event], everywhere: bool) -> None:
    """Objects come, are replaced by others of their name and go, seen or unseen; then each watch lists again."""
    cluster, cache = Objects(), ObjectCache()
    queued: list[WorkKey] = []
    events_handler = WatchEventHandler(cache, queued.append, canary=lambda _: None)
    for version, (kind, namespace, name, exists, delivered) in enumerate(events):
        key = (kind, namespace, name)
        before = cluster.present.pop(key, None)
        if exists:
            cluster.present[key] = tree(kind, namespace, name, version)
        elif before is None:
            continue
        if delivered:
            events_handler.handle(cluster.present[key] if exists else before or {}, not exists)
    # The list itself arrives as events, of what is there.
    for each in cluster.present.values():
        events_handler.handle(each, False)
    for plural in KINDS.values():
        for where in (None,) if everywhere else ("x", "y"):
            asyncio.run(events_handler.missed(cluster, where, plural))  # type: ignore[arg-type]  # the part of Cluster that it uses
    for kind in KINDS:
        known = {each["metadata"]["uid"] for each in cache.list_objects(kind, None)}
        assert known == {each["metadata"]["uid"] for (of, _, _), each in cluster.present.items() if of == kind}


def test_children_that_may_have_been_missed_are_applied_anew() -> None:
    """Nothing of a child is kept but its version, so the job is looked at, and what is not as it should be is applied."""
    cache = ObjectCache()
    queued: list[WorkKey] = []
    events_handler = WatchEventHandler(cache, queued.append, canary=lambda _: None)
    for namespace in "xy":
        events_handler.handle(tree("StatefulSparkJob", namespace, "a", 1), False)
        service = tree("Service", namespace, "a-driver", 1)
        cache.record_apply(service, service, None)
    queued.clear()
    asyncio.run(events_handler.missed(Objects(), "x", "services"))  # type: ignore[arg-type]  # the part of Cluster that it uses
    assert not cache.children_intact("x", "a")
    assert cache.children_intact("y", "a")
    assert queued == [("job", "x", "a")]


def test_a_watch_that_makes_no_request_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is refused and retried is not: a restart would not help. kopf that starts again begins anew."""
    now = [1000.0]
    monkeypatch.setattr("statefulspark_operator.handlers.watch_health.time.monotonic", lambda: now[0])
    watch_health = WatchHealth(changed=lambda *_: None, relisted=lambda *_: None)
    watch_health.record(WatchResponse(namespace="x", plural="pods", listing=True, code=200))
    for _ in range(10):
        now[0] += 100
        watch_health.record(WatchResponse(namespace="y", plural="pods", listing=True, code=403))
        if now[0] <= 1400:
            assert watch_health.problem() is None
    problem = watch_health.problem()
    assert problem is not None
    assert "pods in namespace x" in problem
    watch_health.started()
    assert watch_health.problem() is None
    assert watch_health.lost("y")
