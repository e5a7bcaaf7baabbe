"""The driver of a `World`: what runs in its pod, what it answers, and how it carries out what it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from statefulspark_operator.api.drivers import Driver, Failure, Operation, Rescale, Slot
from statefulspark_operator.api.jobs import LagInfo, SnapshotInfo
from statefulspark_operator.reconcile.job.plan.actions import AskDriver

if TYPE_CHECKING:
    from tests.reconcile.job.plan.world import World


@dataclass
class Process:
    """What runs inside a driver's pod."""

    image: str
    parallelism: int
    folder: str | None = None
    """Its job's folder in storage."""
    age: int = 0
    began: int = 3
    """Age at which its first batch begins."""
    """Ticks since it was started."""
    operations: dict[str, Operation] = field(default_factory=dict)
    last_checkpoint: SnapshotInfo | None = None
    last_rescale: Rescale | None = None


def status(world: World) -> Driver | None:
    """What the driver answers; None if it does not."""
    process = world.process
    if process is None or world.deaf or world.pod is None or world.pod.phase != "Running" or process.age < 2:
        return None
    return Driver(
        state=world.driver_state if process.age >= 3 else "CREATED",
        attempt=world.pods_made,
        batch=committed_batch(world),
        restarts=process.age if process.image in world.stuck_images | world.failing_images else 0,
        committed_batches=max(0, committed_batch(world) - process.began),
        idle=world.waits and process.age >= 4,
        failures=max(0, process.age - 3) if process.image in world.failing_images else 0,
        failing=Failure(reason="Unavailable", message="the sink is closed")
        if process.image in world.failing_images and process.age > 3
        else None,
        parallelism=process.parallelism,
        max_parallelism=world.key_groups[process.folder],
        slots=tuple(
            Slot(
                slot=i,
                first=0,
                last=0,
                state="STARTING" if i < world.missing_slots else "RUNNING",
                executor="1",
                host=f"counts-exec-{world.pods_made}",
                oom_kills=world.oom_kills,
                limit_bytes=4 << 30,
            )
            for i in range(process.parallelism)
        ),
        last_checkpoint=process.last_checkpoint,
        lag=LagInfo(rows=1000 * committed_batch(world)) if process.age >= process.began else None,
        operations=dict(process.operations),
        last_rescale=process.last_rescale,
    )


def committed_batch(world: World) -> int:
    """Last committed batch."""
    process = world.process
    still = process is None or world.waits or process.image in world.stuck_images | world.failing_images
    return 0 if process is None or still else process.age


def ask(world: World, action: AskDriver) -> None:
    """The operator requests an operation."""
    process = world.process
    if process is None or action.key in process.operations:
        return
    if action.kind == "checkpoint":
        world.asked_checkpoints += 1
        # Also between two attempts at a batch that fails.
        process.last_checkpoint = world.new_snapshot()
        process.operations[action.key] = Operation(id=action.key, state="SUCCEEDED", snapshot=process.last_checkpoint)
        return
    if action.kind == "stop" and process.image in world.failing_images:
        return  # waits for the end of a batch that does not come
    if action.kind in {"stop", "cancel"} and world.failing_stops > 0:
        world.failing_stops -= 1
        process.operations[action.key] = Operation(
            id=action.key, state="FAILED", error=Failure(reason="Unavailable", message="storage does not answer")
        )
        return
    if action.kind == "rescale" and world.failing_rescales > 0:
        world.failing_rescales -= 1
        process.operations[action.key] = Operation(id=action.key, state="FAILED", error=Failure(reason="Unavailable", message="no room"))
        return
    if action.kind == "rescale":
        wanted = action.parallelism or 1
        process.operations[action.key] = Operation(id=action.key, state="RUNNING" if world.endless_rescale else "SUCCEEDED")
        process.last_rescale = Rescale(from_parallelism=process.parallelism, to_parallelism=wanted, fetch_bytes=3 << 19, pause_ms=3_900)
        process.parallelism = wanted
        return
    if world.hangs:
        process.operations[action.key] = Operation(id=action.key, state="RUNNING")
        return
    if action.kind == "cancel" and not action.retain:
        if world.deletes_checkpoints:
            world.kept = []
        world.end("CANCELED", None, "s3://bucket/chk-0", kept=frozenset(each.id for each in world.kept))
        return
    world.canceled_and_kept += action.kind == "cancel"
    world.savepoints += action.savepoint
    snapshot = world.new_snapshot("savepoints/" if action.savepoint else "")
    process.operations[action.key] = Operation(id=action.key, state="SUCCEEDED", snapshot=snapshot)
    world.end("SUSPENDED", None, snapshot.path)
