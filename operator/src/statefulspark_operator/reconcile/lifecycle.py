"""Changes of a job's status as values: entering a state, beginning and ending a transition. Pure."""

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
from statefulspark_operator.reconcile.actions import Action, Event, Plan
from statefulspark_operator.reconcile.observation import Observation


@dataclass(slots=True)
class Draft:
    """A plan in the making: the status as it will be, with the actions and events that go with it.

    Only `Draft` is changed while planning; what it is made from and what it becomes are values.
    """

    seen: Observation
    status: StatefulSparkJobStatus
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    look_again_s: float | None = None

    @classmethod
    def of(cls, seen: Observation) -> Self:
        """Start from the status as it was last written."""
        return cls(seen, seen.status)

    @property
    def now(self) -> datetime:
        """The moment of the observation."""
        return self.seen.now

    def set(self, **changes: Any) -> None:
        """Change fields of the status."""
        self.status = self.status.model_copy(update=changes)

    def do(self, *actions: Action) -> None:
        """Ask for actions."""
        self.actions.extend(actions)

    def tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an event."""
        self.events.append(Event(reason=reason, message=message, warning=warning))

    def look_again(self, seconds: float) -> None:
        """Look again after ``seconds`` at the latest."""
        self.look_again_s = seconds if self.look_again_s is None else min(self.look_again_s, seconds)

    def enter(self, state: LifecycleState, reason: str, message: str) -> None:
        """Enter a state of the life cycle, unless the job is in it."""
        if self.status.lifecycle_state is state:
            return
        change = LifecycleChange(state=state, since=self.now, reason=reason, message=message)
        history = (change, *self.status.lifecycle_history)[:HISTORY_MAX]
        self.set(lifecycle_state=state, lifecycle_since=self.now, lifecycle_history=history)

    def begin(self, kind: TransitionKind, step: str, *, within: timedelta, **fields: Any) -> Transition:
        """Begin a transition to the spec that is there now; its first step is taken when the status has been written."""
        transition = Transition(
            kind=kind,
            step=step,
            since=self.now,
            deadline=self.now + within,
            generation=self.seen.generation,
            **fields,
        )
        self.set(transition=transition)
        self.look_again(0)
        return transition

    def step(self, step: str, **changes: Any) -> None:
        """Go to the next step of the transition; it is taken when the status has been written."""
        transition = self.status.transition
        if transition is None:
            return
        self.set(transition=transition.model_copy(update={"step": step, "attempts": 0, **changes}))
        self.look_again(0)

    def end(self) -> None:
        """The transition is over."""
        self.set(transition=None)

    def reconciled(self, **changes: Any) -> None:
        """Change what is remembered of specs that were acted on."""
        now = self.status.reconciliation
        self.set(reconciliation=ReconciliationStatus(**changes) if now is None else now.model_copy(update=changes))

    def failed(self, failure: Failure) -> None:
        """Remember why the job is not as it should be."""
        before = self.status.error
        if before is not None and (before.reason, before.message) == (failure.reason, failure.message):
            return
        self.set(error=ErrorInfo(reason=failure.reason, message=failure.message, since=self.now))

    def fail_and_tell(self, failure: Failure, said: str) -> None:
        """Remember why the job is not as it should be; the warning event ``said`` comes once, however often it is tried."""
        before = self.status.error
        if before is None or before.reason != failure.reason:
            self.tell(failure.reason, said, warning=True)
        self.failed(failure)

    def plan(self) -> Plan:
        """The finished plan."""
        return Plan(status=self.status, actions=tuple(self.actions), events=tuple(self.events), look_again_s=self.look_again_s)
