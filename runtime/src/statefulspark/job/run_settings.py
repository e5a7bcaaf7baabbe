"""The settings of a running job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statefulspark.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What does not change while the job runs."""

    name: str
    max_parallelism: int
    """Number of key groups."""
    parallelism_max: int
    """The most slots this Spark application has cores for."""
    slots_per_executor: int | None
    """How many slots an executor's memory is made for; None = no bound."""
    local_checkpoint: str
    """Spark's local checkpoint location."""
    restart_user_errors: bool
    """Whether the restart strategy holds for errors of the user's function too; otherwise they end the job."""
    until_idle: bool
    """Stop with a checkpoint when the sources have nothing more and no timer is due."""
    tolerable_failures: int
    """How many checkpoints in a row may fail before the job does."""
    retain_on_cancellation: bool
    """Whether ``cancel`` keeps checkpoints."""
    native_metrics: tuple[str, ...] = ()
    """Flink's names of RocksDB's own figures that slots report."""
    executors_for: Callable[[int], int]
    """How many executors a parallelism needs."""

    def check_parallelism(self, parallelism: int) -> None:
        """Refuse a number of slots that the job cannot be rescaled to.

        Raises:
            InvalidInputError: Out of bounds, or more than Spark has task cores for.
        """
        if not 1 <= parallelism <= self.max_parallelism:
            raise InvalidInputError(
                f"{parallelism} is not in 1..{self.max_parallelism}",
                field="parallelism",
                remedy="maxParallelism cannot change; choose within it",
            )
        if parallelism > self.parallelism_max:
            raise InvalidInputError(
                f"{parallelism} slots and their exchanges need more task cores than this Spark application has",
                field="parallelism",
                remedy=f"Choose at most {self.parallelism_max}, or start the job with more executors or cores",
            )
