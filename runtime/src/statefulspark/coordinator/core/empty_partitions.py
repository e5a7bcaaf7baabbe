"""Partitions of the running batch that had no rows, counted until they account for every slot without rows.

A partition reads its slot off its first row, so one without rows does not know its slot: Spark numbers a task by the last partitions of its
stage, which `union` and `coalesce` renumber. Within one execution of a query each partition is computed once per task, though. So
when as many partitions without rows have reported from one execution as there are slots that had no rows, they are those slots'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from statefulspark.rpc.messages.batches import PartitionRun


@dataclass(frozen=True, slots=True)
class EmptyPartitions:
    """Reports of one batch. Immutable."""

    reports: Mapping[tuple[str, PartitionRun], int] = field(default_factory=dict)
    begun: frozenset[tuple[str, int]] = frozenset()

    def with_begun(self, uid: str, slot: int) -> EmptyPartitions:
        """A partition with rows of this slot has begun."""
        return replace(self, begun=self.begun | {(uid, slot)})

    def with_report(self, uid: str, run: PartitionRun) -> EmptyPartitions:
        """A partition ended without rows. A task may compute several, one after the other."""
        return replace(self, reports={**self.reports, (uid, run): self.reports.get((uid, run), 0) + 1})

    def account_for(self, uid: str, slots: AbstractSet[int]) -> bool:
        """True if ``slots``, which have not acknowledged the batch, had no rows."""
        return not any((uid, slot) in self.begun for slot in slots) and self._most(uid) >= len(slots)

    def _most(self, uid: str) -> int:
        """The most partitions that one execution computed; of several attempts of a task the best one counts."""
        best: dict[tuple[str, int], int] = {}
        for (owner, run), count in self.reports.items():
            if owner == uid:
                key = (run.execution, run.partition)
                best[key] = max(best.get(key, 0), count)
        executions: Counter[str] = Counter()
        for (execution, _), count in best.items():
            executions[execution] += count
        return max(executions.values(), default=0)
