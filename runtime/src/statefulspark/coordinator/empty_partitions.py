"""Partitions of the running batch that had no rows, counted until they account for every slot without rows.

A partition reads its slot off its first row, so one without rows does not know its slot: Spark numbers a task by the last partitions of its
stage, which `union` and `coalesce` renumber. Within one execution of a query each partition is computed once per task, though. So
when as many partitions without rows have reported from one execution as there are slots that had no rows, they are those slots'.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from statefulspark.rpc.messages.batches import PartitionRun


class EmptyPartitions:
    """Reports of one batch. Pure."""

    def __init__(self) -> None:
        self._reports: dict[str, dict[PartitionRun, int]] = defaultdict(Counter)
        self._begun: dict[str, set[int]] = defaultdict(set)

    def begun(self, uid: str, slot: int) -> None:
        """A partition with rows of this slot has begun."""
        self._begun[uid].add(slot)

    def report(self, uid: str, run: PartitionRun) -> None:
        """A partition ended without rows. A task may compute several, one after the other."""
        self._reports[uid][run] += 1

    def account_for(self, uid: str, slots: set[int]) -> bool:
        """True if ``slots``, which have not acknowledged the batch, had no rows."""
        return not slots & self._begun[uid] and self._most(uid) >= len(slots)

    def _most(self, uid: str) -> int:
        """The most partitions that one execution computed; of several attempts of a task the best one counts."""
        best: dict[tuple[str, int], int] = {}
        for run, count in self._reports[uid].items():
            key = (run.execution, run.partition)
            best[key] = max(best.get(key, 0), count)
        executions: Counter[str] = Counter()
        for (execution, _), count in best.items():
            executions[execution] += count
        return max(executions.values(), default=0)
