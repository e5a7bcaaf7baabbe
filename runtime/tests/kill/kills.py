"""When and whom to kill: plans drawn from a seed, over random moments and the named points of the protocol."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from .harness import Ledger, kill, wait_until

MOMENT = "moment"
"""A kill at a random moment instead of a point of the protocol."""

SLOT_POINTS = (
    "slot.begun",
    "slot.processed",
    "slot.changelog.durable",
    "slot.acknowledged",
    "slot.snapshot.linked",
    "slot.snapshot.uploaded",
    "slot.restored",
)
"""Between any two of a slot's steps; ``slot.restored`` is reached by slots that are being started only."""

DRIVER_POINTS = (
    "driver.begin",
    "driver.begun",
    "driver.acknowledged",
    "driver.checkpoint.collected",
    "driver.checkpoint.published",
)

GROUP_POINTS = ("driver.group", "driver.grouped")
"""Around the write of the changelogs that the driver stores in one object, of batches that run for the first time."""

OUTPUT_POINTS = ("driver.output.written",)
"""Between two outputs of a step with side outputs."""

_LONGEST_PAUSE_S = 0.6
_STRIKE_S = 180.0
"""Only bounds a broken run: a JVM may need a minute to start on a machine that does much else."""


def whenever(points: tuple[str, ...], victim: str = "") -> tuple[str, ...]:
    """Failpoint entries that strike at the next pass of each point once armed."""
    return tuple(f"{point}:*:{victim}".rstrip(":") for point in points)


def drawn(choices: tuple[str, ...], count: int, chance: random.Random) -> list[str]:
    """``count`` kills: half of them at random moments, the others spread evenly over ``choices``, in random order."""
    at_points = [choices[number % len(choices)] for number in range(count // 2)]
    plan = at_points + [MOMENT] * (count - len(at_points))
    chance.shuffle(plan)
    return plan


@dataclass(slots=True)
class Harasser:
    """Kills workers of a job that goes on running. A batch is committed between any two kills, so that each one counts."""

    ledger: Ledger
    victims: Callable[[], list[int]]
    """Processes to choose from for a kill at a random moment; none while there is nobody to kill."""
    kills: int = 0

    def run(self, plan: list[str]) -> None:
        """Carry the plan out."""
        batch = -1
        for step in plan:
            self.ledger.wait_for_batch(batch + 1)
            self.strike(step)
            batch = self.ledger.batch()

    def strike(self, step: str) -> None:
        """Kill one process at a random moment from now, or the next one that reaches the point."""
        if step != MOMENT:
            self.ledger.arm(step)
        if step.startswith("slot.restored"):
            self._kill_one(self.ledger.slots)  # so that some slot has to restore; an executor may have none
        if step == MOMENT:
            time.sleep(self.ledger.random.uniform(0, _LONGEST_PAUSE_S))
            self._kill_one(self.victims)
        else:
            wait_until(lambda: self.ledger.struck(step) or not self.ledger.running(), _STRIKE_S, step)
            assert self.ledger.struck(step), f"the driver ended before {step}"
        self.kills += 1

    def _kill_one(self, victims: Callable[[], list[int]]) -> None:
        found: list[int] = []

        def any_there() -> bool:
            found[:] = victims()
            return bool(found)

        wait_until(any_there, _STRIKE_S, "a victim")
        kill(self.ledger.random.choice(found))


@dataclass(slots=True)
class DriverKiller:
    """Kills the driver with all it started, over and over."""

    ledger: Ledger
    kills: int = 0
    wiped: int = 0

    def run(self, plan: list[tuple[str, bool]]) -> None:
        """Carry the plan out: where to strike, and whether the local disk is lost too."""
        for step, wipe in plan:
            self.strike(step)
            self.ledger.kill_driver()
            if wipe:
                self.ledger.wipe_disk()
                self.wiped += 1
            else:
                self.kills += 1

    def strike(self, step: str) -> None:
        """Start a driver and let it die: while it still recovers, or some batches later."""
        ledger = self.ledger
        # Slots restore when the driver starts, and not again.
        at_once = step.startswith("slot.restored") or (step != MOMENT and ledger.random.random() < 0.4)
        if at_once:
            ledger.arm(step)
        ledger.start()
        if not at_once:
            wait_until(lambda: ledger.status() is not None or not ledger.running(), _STRIKE_S, "the driver's first answer")
            ledger.wait_for_batch(ledger.batch() + 1)
            time.sleep(ledger.random.uniform(0, _LONGEST_PAUSE_S))
            if step != MOMENT:
                ledger.arm(step)
        if step != MOMENT:
            wait_until(lambda: ledger.struck(step) or not ledger.running(), _STRIKE_S, step)
            assert ledger.struck(step), f"the driver ended before {step}"
