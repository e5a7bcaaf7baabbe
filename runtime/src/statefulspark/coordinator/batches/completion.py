"""Completion: carries out what the core decides about batches that Spark has committed."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from statefulspark.coordinator.batches.adoption import Adoption
from statefulspark.coordinator.batches.changelogs import Complete
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.coordinator.batches.reports import BatchReports
from statefulspark.coordinator.core import actions as do
from statefulspark.coordinator.core import events
from statefulspark.coordinator.durable.spark_location import SparkLocation
from statefulspark.coordinator.inbox import Inbox
from statefulspark.coordinator.slots.operator_states import OperatorDistribution
from statefulspark.errors import InvalidInputError, StatefulSparkError

_log = structlog.get_logger("statefulspark.coordinator")


class Completion:
    """Ends batches; not to be called with the lock of the inbox, unless said.

    Args:
        inbox: Of the core.
        batches: The job's batches, guarded by the inbox.
        location: Spark's local checkpoint location.
        reports: What is reported of the running batch.
        adoption: Takes over batches from other attempts.
        operator_states: The distribution of operator state to the present slots.
        fail: Ends the job with an error.
    """

    def __init__(
        self,
        inbox: Inbox,
        *,
        batches: BatchLog,
        location: SparkLocation,
        reports: BatchReports,
        adoption: Adoption,
        operator_states: OperatorDistribution,
        fail: Callable[[StatefulSparkError], None],
    ) -> None:
        self.reports = reports
        self._inbox = inbox
        self._batches = batches
        self._location = location
        self._adoption = adoption
        self._operator_states = operator_states
        self._fail = fail

    def finish(self) -> bool:
        """Commit the running batch if Spark has committed it and it is complete.

        Returns:
            True if no batch is running any more.

        Raises:
            UnavailableError: Storage did not answer.
            IncompatibleFormatError: A newer release processed the batch.
        """
        while True:
            with self._inbox.lock:
                actions = self.feed(events.Looked(self._location.facts(self._inbox.life)))
                if not actions:
                    return self._inbox.life.is_idle
            self.carry_out(actions)

    def feed(self, event: events.Event) -> tuple[do.Action, ...]:
        """Take in an event and keep the books; the other actions remain to be carried out. May be called with the lock."""
        with self._inbox.lock:
            actions = self._inbox.feed(event)
            for action in actions:
                if isinstance(action, do.Commit):
                    self._batches.commit_current()
                    self._operator_states.committed(action.batch)
            return actions

    def carry_out(self, actions: tuple[do.Action, ...]) -> None:
        """Do what ends a batch.

        Raises:
            UnavailableError: Storage did not answer.
            IncompatibleFormatError: A newer release processed the batch.
        """
        for action in actions:
            match action:
                case do.StoreLeftovers() | do.Search():
                    self._end(action)
                case do.PlanDryRun():
                    _announce(action)
                case do.Fail():
                    self._fail(
                        InvalidInputError(
                            f"the query does not read all rows of uid {', '.join(map(repr, action.uids))} in batch {action.batch}",
                            field="spec.job",
                            remedy="Let the query use every row of a keyed step; filter rows before it or in its function",
                        )
                    )
                case _:
                    pass

    def _end(self, action: do.StoreLeftovers | do.Search) -> None:
        with self._inbox.step(action.number):
            if isinstance(action, do.StoreLeftovers):
                self.feed(events.LeftoversStored(action.number, self.reports.store_group(action.batch)))
                return
            found = self._adoption.search(action.batch)
            following = self.feed(events.Searched(action.number, found.steps if found is not None else None))
        for adopt in following:
            if isinstance(adopt, do.Adopt) and found is not None:
                following = self._adopt(adopt, found)
        self.carry_out(following)

    def _adopt(self, action: do.Adopt, found: Complete) -> tuple[do.Action, ...]:
        batch = action.parameters.batch
        with self._inbox.step(action.number):
            is_possible = self._adoption.take_over_states(batch, found)
            if is_possible and action.undo:
                self._adoption.undo(batch)
            with self._inbox.lock:
                if is_possible:
                    self._adoption.apply(action.parameters, found)
                return self.feed(events.Adopted(action.number, is_possible))


def _announce(action: do.PlanDryRun) -> None:
    if action.recovered:
        _log.warning("the sink committed a batch that no driver processed completely; rerunning it without the sink", batch=action.batch)
    else:
        _log.warning(
            "the sink did not read all rows of a batch; the batch is rerun without the sink, which adds latency. "
            "Let the sink evaluate the whole DataFrame, for example with write or collect",
            batch=action.batch,
            uids=list(action.uids),
        )
