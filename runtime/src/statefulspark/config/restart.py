"""How often and after which pause a failed job is started again. Strategies, names and defaults are Flink's."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from statefulspark.config.base import UPGRADE, Model, Number, WholeNumber
from statefulspark.config.problems import Problem
from statefulspark.config.values.durations import Duration, at_least

_Attempts = Annotated[WholeNumber, Field(ge=1, le=2_147_483_647)]


class RestartStrategyType(StrEnum):
    """Flink's restart strategies."""

    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    FAILURE_RATE = "failure-rate"
    EXPONENTIAL_DELAY = "exponential-delay"


class FixedDelaySpec(Model):
    """A fixed number of restarts with the same pause before each."""

    attempts: _Attempts = Field(default=1, json_schema_extra=UPGRADE)
    """Number of restarts before the job fails permanently (minimum 1)."""

    delay: Duration = Field(default=1000, json_schema_extra=UPGRADE)
    """Delay before each restart."""


class FailureRateSpec(Model):
    """Restarts as long as failures stay rare."""

    max_failures_per_interval: _Attempts = Field(default=1, json_schema_extra=UPGRADE)
    """Maximum number of failures within failureRateInterval (minimum 1). One more fails the job permanently."""

    failure_rate_interval: Annotated[Duration, at_least("1ms")] = Field(default=60_000, json_schema_extra=UPGRADE)
    """Interval in which failures are counted (minimum 1ms)."""

    delay: Duration = Field(default=1000, json_schema_extra=UPGRADE)
    """Delay before each restart."""


class ExponentialDelaySpec(Model):
    """Restarts with exponential backoff, without limit unless attemptsBeforeResetBackoff is set."""

    initial_backoff: Annotated[Duration, at_least("1ms")] = Field(default=1000, json_schema_extra=UPGRADE)
    """Delay before the first restart (minimum 1ms)."""

    max_backoff: Annotated[Duration, at_least("1ms")] = Field(default=60_000, json_schema_extra=UPGRADE)
    """Maximum delay (minimum 1ms)."""

    backoff_multiplier: Annotated[Number, Field(ge=1, le=100)] = Field(default=1.5, json_schema_extra=UPGRADE)
    """Factor by which the delay grows with each restart (1 to 100)."""

    reset_backoff_threshold: Annotated[Duration, at_least("1ms")] = Field(default=3_600_000, json_schema_extra=UPGRADE)
    """Time without failures after which the delay is reset to initialBackoff (minimum 1ms)."""

    jitter_factor: Annotated[Number, Field(ge=0, le=1)] = Field(default=0.1, json_schema_extra=UPGRADE)
    """Jitter as a fraction of the delay (0 to 1), which keeps jobs from restarting at the same time."""

    attempts_before_reset_backoff: _Attempts | None = Field(default=None, json_schema_extra=UPGRADE)
    """Number of restarts before the job fails permanently. Defaults to no limit."""

    def conflicts(self) -> Iterator[Problem]:
        """The pause grows from the first to the longest."""
        if self.initial_backoff > self.max_backoff:
            yield Problem("initialBackoff", "is longer than maxBackoff", "Make it at most maxBackoff")


class RestartStrategySpec(Model):
    """How the job restarts after a failure."""

    type: RestartStrategyType = Field(default=RestartStrategyType.EXPONENTIAL_DELAY, json_schema_extra=UPGRADE)
    """Restart strategy: none, fixed-delay, failure-rate or exponential-delay."""

    fixed_delay: FixedDelaySpec = Field(default=FixedDelaySpec(), json_schema_extra=UPGRADE)
    """Settings of type fixed-delay."""

    failure_rate: FailureRateSpec = Field(default=FailureRateSpec(), json_schema_extra=UPGRADE)
    """Settings of type failure-rate."""

    exponential_delay: ExponentialDelaySpec = Field(default=ExponentialDelaySpec(), json_schema_extra=UPGRADE)
    """Settings of type exponential-delay."""

    def conflicts(self) -> Iterator[Problem]:
        """Settings of a strategy that is not chosen would be without effect."""
        for field, differs, owner in (
            ("fixedDelay", self.fixed_delay != FixedDelaySpec(), RestartStrategyType.FIXED_DELAY),
            ("failureRate", self.failure_rate != FailureRateSpec(), RestartStrategyType.FAILURE_RATE),
            ("exponentialDelay", self.exponential_delay != ExponentialDelaySpec(), RestartStrategyType.EXPONENTIAL_DELAY),
        ):
            if differs and self.type is not owner:
                yield Problem(field, f"has no effect with type {self.type}", f"Remove it or set type: {owner}")
