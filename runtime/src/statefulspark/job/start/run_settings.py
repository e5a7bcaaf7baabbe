"""Settings of a running job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from statefulspark.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings that do not change while the job runs."""

    name: str
    max_parallelism: int
    """Number of key groups."""
    parallelism_max: int
    """The most slots this Spark application has cores for."""
    slots_per_executor: int | None
    """Maximum number of slots per executor, given its memory; None for no limit."""
    local_checkpoint: str
    """Spark's local checkpoint location."""
    restart_user_errors: bool
    """True if the restart strategy holds for errors of the user's function too; otherwise they end the job."""
    until_idle: bool
    """Stop with a checkpoint when the sources have nothing more and no timer is due."""
    drain_when_idle: bool = False
    """With ``until_idle``: advance the watermark to its end first, so that every event-time timer fires."""
    tolerable_failures: int
    """Number of consecutive failed checkpoints that the job tolerates."""
    retain_on_cancellation: bool
    """True if ``cancel`` keeps checkpoints."""
    native_metrics: tuple[str, ...] = ()
    """Flink's names of the native RocksDB metrics that slots report."""
    own_session: bool = True
    """True if the session ends with the job; False if it is the user's."""
    query_settings: Callable[[], AbstractContextManager[None]] = nullcontext
    """Sets what a query needs in a session that is the user's, while one is built and started."""
    executors_for: Callable[[int], int]
    """Returns the number of executors that a parallelism needs."""

    def check_parallelism(self, parallelism: int) -> None:
        """Refuse a number of slots that the job cannot be rescaled to.

        Raises:
            InvalidInputError: Out of bounds, or more than Spark has task cores for.
        """
        if not 1 <= parallelism <= self.max_parallelism:
            raise InvalidInputError(
                f"{parallelism} is not in 1..{self.max_parallelism}",
                field="parallelism",
                remedy="Choose a value within maxParallelism, which cannot be changed",
            )
        if parallelism > self.parallelism_max:
            raise InvalidInputError(
                f"{parallelism} slots and their exchanges need more task cores than this Spark application has",
                field="parallelism",
                remedy=f"Choose at most {self.parallelism_max}, or start the job with more executors or cores",
            )
