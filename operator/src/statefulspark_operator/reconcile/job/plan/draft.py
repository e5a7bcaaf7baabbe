"""The plan under construction: status changes, actions and events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from statefulspark_operator.api.drivers import Failure
from statefulspark_operator.api.jobs import (
    HISTORY_MAX,
    ErrorInfo,
    LifecycleChange,
    LifecycleState,
    ReconciliationStatus,
    StatefulSparkJobStatus,
    Transition,
    TransitionKind,
)
from statefulspark_operator.reconcile.job.observe.observation import Observation
from statefulspark_operator.reconcile.job.plan.actions import Action, Event, Plan


@dataclass(slots=True)
class Draft:
    """A plan under construction: the new status, with its actions and events.

    `Draft` is the only mutable object in planning; its input and its result are immutable.
    """

    observed: Observation
    status: StatefulSparkJobStatus
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    requeue_after_s: float | None = None

    @classmethod
    def of(cls, observed: Observation) -> Self:
        """Starts from the status as last written."""
        return cls(observed, observed.status)

    @property
    def now(self) -> datetime:
        """The time of the observation."""
        return self.observed.now

    def set(self, **changes: Any) -> None:
        """Sets fields of the status."""
        self.status = self.status.model_copy(update=changes)

    def do(self, *actions: Action) -> None:
        """Adds actions."""
        self.actions.extend(actions)

    def record_event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Adds an event."""
        self.events.append(Event(reason=reason, message=message, warning=warning))

    def requeue_after(self, seconds: float) -> None:
        """Requeues the job within ``seconds``."""
        self.requeue_after_s = seconds if self.requeue_after_s is None else min(self.requeue_after_s, seconds)

    def enter(self, state: LifecycleState, reason: str, message: str) -> None:
        """Enters a lifecycle state, unless the job is in it already."""
        if self.status.lifecycle_state is state:
            return
        change = LifecycleChange(state=state, since=self.now, reason=reason, message=message)
        history = (change, *self.status.lifecycle_history)[:HISTORY_MAX]
        self.set(lifecycle_state=state, lifecycle_since=self.now, lifecycle_history=history)

    def begin(self, kind: TransitionKind, step: str, *, within: timedelta, **fields: Any) -> Transition:
        """Begins a transition to the current spec. Its first step is taken after the status has been written."""
        transition = Transition(
            kind=kind,
            step=step,
            since=self.now,
            deadline=self.now + within,
            generation=self.observed.generation,
            **fields,
        )
        self.set(transition=transition)
        self.requeue_after(0)
        return transition

    def step(self, step: str, **changes: Any) -> None:
        """Moves on to the next step of the transition, which is taken after the status has been written."""
        transition = self.status.transition
        if transition is None:
            return
        self.set(transition=transition.model_copy(update={"step": step, "attempts": 0, **changes}))
        self.requeue_after(0)

    def end(self) -> None:
        """Ends the transition."""
        self.set(transition=None)

    def reconciled(self, **changes: Any) -> None:
        """Sets fields of the reconciliation status."""
        now = self.status.reconciliation
        self.set(reconciliation=ReconciliationStatus(**changes) if now is None else now.model_copy(update=changes))

    def failed(self, failure: Failure) -> None:
        """Sets the status's error, keeping the time of an identical one."""
        before = self.status.error
        if before is not None and (before.reason, before.message) == (failure.reason, failure.message):
            return
        self.set(error=ErrorInfo(reason=failure.reason, message=failure.message, since=self.now))

    def record_failure(self, failure: Failure, said: str) -> None:
        """Sets the status's error, and adds the warning event ``said`` unless the error's reason was set already."""
        before = self.status.error
        if before is None or before.reason != failure.reason:
            self.record_event(failure.reason, said, warning=True)
        self.failed(failure)

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(status=self.status, actions=tuple(self.actions), events=tuple(self.events), requeue_after_s=self.requeue_after_s)
