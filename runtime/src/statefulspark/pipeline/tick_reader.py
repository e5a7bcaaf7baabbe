"""The reader of the tick source.

For each query Spark starts Python processes that only create and plan the source. They import this module, so it imports little; what calls
the coordinator is imported with the first call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from statefulspark.errors import StatefulSparkError
from statefulspark.exchange.endpoint import Endpoint

TICK: Final = "tick"
"""The one member of an offset."""


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Asks the coordinator, in Spark's source process on the driver, whether a timer of ``uid`` is due."""

    def __init__(self, endpoint: Endpoint, uid: str) -> None:
        self._endpoint = endpoint
        self._uid = uid

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        return {TICK: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Nothing to note here: the coordinator knows when the query started and which timers were due by then."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802  Spark's name
        """A new offset if a timer is due, else ``start``. With ``availableNow`` it waits until every slot has reported its timers."""
        from statefulspark.pipeline.tick_calls import newest_tick  # noqa: PLC0415  see the module

        try:
            return {TICK: newest_tick(self._endpoint, self._uid, after=int(start[TICK]))}
        except StatefulSparkError:
            return start  # the driver is on its way out

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002  Spark's signature
        return [InputPartition(int(end[TICK]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002  Spark's signature
        """Let the coordinator make the planned batch durable.

        Spark calls this for every batch but the first, after it has written the batch's offsets and before it runs the batch. So a
        batch in which no row reaches a keyed step has its record too, before any sink can commit it.

        Raises:
            StatefulSparkError: the batch must not run.
        """
        from statefulspark.pipeline.tick_calls import await_planned  # noqa: PLC0415  see the module

        await_planned(self._endpoint)
