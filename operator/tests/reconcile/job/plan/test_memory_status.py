"""What is ended for lack of memory is told once, with the numbers and what to change, however it is known."""

from __future__ import annotations

from statefulspark_operator.reconcile.job.observe.observation import OutOfMemory
from tests.manifests import manifest
from tests.reconcile.job.plan.world import World


def running() -> World:
    world = World(manifest(executor={"memory": "4Gi", "slots": 2}))
    world.settle()
    assert world.status.lifecycle_state == "STABLE"
    return world


def told(world: World) -> list[str]:
    return [message for reason, message in zip(world.events, world.messages, strict=True) if reason == "OOMKilled"]


def test_a_slot_that_the_kernel_ended_inside_its_container_is_told_once() -> None:
    """All slots of the executor tell the same count; a later kill is another event."""
    world = running()
    assert not told(world)
    world.oom_kills = 1
    world.settle(rounds=10)
    (message,) = told(world)
    assert "A process of executor counts-exec-1" in message
    assert "4096 MiB" in message
    assert "Set spec.executor.memory to 5120Mi, or lower spec.executor.slots from 2" in message
    assert "managed" in message
    world.oom_kills = 3
    world.settle(rounds=10)
    assert len(told(world)) == 2
    assert "2 processes" in told(world)[1]
    (kill,) = world.status.memory_kills
    assert (kill.pod, kill.kills) == ("counts-exec-1", 3)


def test_an_executor_that_kubernetes_says_was_ended_is_told_once() -> None:
    world = running()
    world.out_of_memory = (OutOfMemory(pod="counts-exec-1", uid="u", limit_bytes=4 << 30),)
    world.settle(rounds=10)
    assert len(told(world)) == 1
    world.out_of_memory = ()
    world.settle(rounds=5)
    assert len(told(world)) == 1


def test_a_new_executor_counts_anew_and_the_memory_of_old_ones_is_bounded() -> None:
    world = running()
    for number in range(20):
        world.out_of_memory = (OutOfMemory(pod=f"counts-exec-{number}", uid=f"u{number}", limit_bytes=None),)
        world.settle(rounds=2)
    assert len(told(world)) == 20
    assert [kill.pod for kill in world.status.memory_kills][:2] == ["counts-exec-19", "counts-exec-18"]
    assert len(world.status.memory_kills) == 16
