"""Leader election: of several replicas at most one acts at any moment, also when the API server fails; a successor comes in time."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

import pytest

from statefulspark.errors import ConflictError, UnavailableError
from statefulspark_operator.handlers import leadership
from statefulspark_operator.handlers.leadership import Leadership, LeaseTimes

TIMES = LeaseTimes(duration_s=15, renew_deadline_s=10, retry_s=2)


class Leases:
    """One Lease as the API server keeps it: versions grow, a write of an old version conflicts."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down_for: set[str] = set()
        self.caller = ""

    def _check(self) -> None:
        if self.caller in self.down_for:
            raise UnavailableError("down")

    async def get(self, *_: object) -> dict[str, Any] | None:
        self._check()
        return copy.deepcopy(self.lease)

    async def create(self, document: dict[str, Any]) -> dict[str, Any] | None:
        self._check()
        if self.lease is not None:
            return None
        self._store(document)
        return document

    async def update(self, document: dict[str, Any]) -> None:
        self._check()
        if self.lease is None or document["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError("changed")
        self._store(document)

    def _store(self, document: dict[str, Any]) -> None:
        self.version += 1
        self.lease = copy.deepcopy(document)
        self.lease["metadata"]["resourceVersion"] = str(self.version)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leadership, "time", clock)
    return clock


def replica(leases: Leases, identity: str) -> Leadership:
    return Leadership(leases, namespace="system", name="lease", identity=identity, times=TIMES, changed=lambda leads: None)  # type: ignore[arg-type]  # the parts of Cluster that it uses


def turn(leases: Leases, clock: Clock, replicas: dict[str, Leadership], seconds: float = 2.0) -> list[str]:
    """Time passes and every replica has its round; returns who may act."""
    clock.now_s += seconds
    for identity, each in replicas.items():
        leases.caller = identity
        with contextlib.suppress(ConflictError, UnavailableError):
            asyncio.run(each._round())
    leaders = [identity for identity, each in replicas.items() if each.holds()]
    assert len(leaders) <= 1, "two lead"
    return leaders


def test_one_leads_and_keeps_leading(clock: Clock) -> None:
    leases = Leases()
    replicas = {name: replica(leases, name) for name in ("a", "b", "c")}
    for _ in range(50):
        assert turn(leases, clock, replicas) == ["a"]


def test_a_leader_that_is_gone_is_followed_in_under_20_seconds(clock: Clock) -> None:
    leases = Leases()
    replicas = {name: replica(leases, name) for name in ("a", "b")}
    turn(leases, clock, replicas)
    del replicas["a"]
    begun_s = clock.now_s
    while turn(leases, clock, replicas) != ["b"]:
        assert clock.now_s - begun_s < 20
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 1


def test_a_leader_that_cannot_renew_stops_before_another_may_begin(clock: Clock) -> None:
    """Between the two there is a while in which nobody leads; never one in which two do."""
    leases = Leases()
    replicas = {name: replica(leases, name) for name in ("a", "b")}
    turn(leases, clock, replicas)
    leases.down_for = {"a"}
    seen = [turn(leases, clock, replicas, seconds=0.5) for _ in range(60)]
    assert ["a"] in seen
    assert [] in seen
    assert seen[-1] == ["b"]
    leases.down_for = set()
    assert turn(leases, clock, replicas) == ["b"], "who comes back does not push the leader out"


def test_a_leader_that_ends_lets_the_next_begin_at_once(clock: Clock) -> None:
    leases = Leases()
    replicas = {name: replica(leases, name) for name in ("a", "b")}
    turn(leases, clock, replicas)
    leases.caller = "a"
    asyncio.run(replicas.pop("a")._release())
    assert turn(leases, clock, replicas) == ["b"]


def test_a_leader_that_renews_late_is_told_that_it_leads_again(clock: Clock) -> None:
    """Whoever was turned away meanwhile does not ask again by itself: without this a job was never looked at again."""
    leases = Leases()
    told: list[bool] = []
    leases.caller = "a"
    leader = Leadership(leases, namespace="system", name="lease", identity="a", times=TIMES, changed=told.append)  # type: ignore[arg-type]  # the parts of Cluster that it uses
    asyncio.run(leader._round())
    leader._tell()
    asyncio.run(leader._round())
    leader._tell()
    assert told == [True]
    clock.now_s += TIMES.renew_deadline_s + 1
    assert not leader.holds()  # a look asks, and gives up
    asyncio.run(leader._round())
    leader._tell()
    assert leader.holds()
    assert told == [True, True]


def test_a_lease_that_someone_deletes_is_taken_by_its_holder_or_after_its_time(clock: Clock) -> None:
    """The holder goes on acting until it looks: another one that finds no lease must not begin at once."""
    leases = Leases()
    replicas = {name: replica(leases, name) for name in ("a", "b")}
    turn(leases, clock, replicas)
    leases.lease = None
    assert turn(leases, clock, {"b": replicas["b"], "a": replicas["a"]}) == ["a"], "b is asked first"
    leases.lease, leases.down_for = None, {"a"}
    seen = [turn(leases, clock, replicas, seconds=0.5) for _ in range(60)]
    assert seen[-1] == ["b"]


def test_the_lease_belongs_to_its_owner_from_the_first_renewal_on(clock: Clock) -> None:
    """Also one that an older operator has made without."""
    leases, owner = Leases(), {"apiVersion": "apps/v1", "kind": "Deployment", "name": "operator", "uid": "u"}
    turn(leases, clock, {"a": replica(leases, "a")})
    assert leases.lease is not None
    assert leases.lease["metadata"]["ownerReferences"] == []
    owned = Leadership(leases, namespace="system", name="lease", identity="a", times=TIMES, changed=lambda _: None, owners=[owner])  # type: ignore[arg-type]  # the parts of Cluster that it uses
    turn(leases, clock, {"a": owned})
    assert leases.lease["metadata"]["ownerReferences"] == [owner]
