"""What tests of plans share: a job that has become stable."""

from __future__ import annotations

from typing import Any

from tests.manifests import manifest
from tests.reconcile.job.plan.world import World


def settled(world: World) -> World:
    world.settle()
    return world


def running(**spec: Any) -> World:
    world = settled(World(manifest(**spec)))
    assert world.status.lifecycle_state == "STABLE"
    return world


def error_of(world: World) -> tuple[str, str]:
    """Reason and message of the status's error."""
    error = world.status.error
    return (error.reason, error.message) if error is not None else ("", "")
