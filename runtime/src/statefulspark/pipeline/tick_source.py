"""The tick source: a streaming source that starts a batch when a timer is due and no row has arrived.

Its offset is the time of the last tick that the coordinator requested. A tick is one row, which reaches every slot of its step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from statefulspark.checkpoint.formats.pipeline import TICKS
from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.exchange.config import Endpoint
from statefulspark.exchange.task import peer
from statefulspark.rpc.messages.batches import Planned, Tick, Wait

FORMAT = TICKS
_POLL_S = 0.05
_FAILURES_MAX = 4
"""As often as Spark tries a task: so often storage may fail, each time after retries of its own, before the query does."""


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Asks the coordinator, in Spark's source process on the driver, whether a timer of ``uid`` is due."""

    def __init__(self, endpoint: Endpoint, uid: str) -> None:
        self._endpoint = endpoint
        self._uid = uid

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Nothing to note here: the coordinator knows when the query started and which timers were due by then."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802  Spark's name
        """A new offset if a timer is due, else ``start``. With ``availableNow`` it waits until every slot has reported its timers."""
        try:
            request = Tick(uid=self._uid, after=int(start["tick"]))
            while isinstance(answer := peer(self._endpoint).call(request, timeout_s=5), Wait):
                time.sleep(_POLL_S)
        except StatefulSparkError:
            return start  # the driver is on its way out
        return {"tick": answer.offset}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002  Spark's signature
        return [InputPartition(int(end["tick"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002  Spark's signature
        """Let the coordinator make the planned batch durable.

        Spark calls this for every batch but the first, after it has written the batch's offsets and before it runs the batch. So a
        batch in which no row reaches a keyed step has its record too, before any sink can commit it.

        Raises:
            StatefulSparkError: the batch must not run.
        """
        failures = 0
        while True:
            try:
                if peer(self._endpoint).call(Planned(), timeout_s=120) is None:
                    return
                failures = 0
            except UnavailableError:
                failures += 1
                if failures == _FAILURES_MAX:
                    raise
            time.sleep(_POLL_S)


def tick_source(endpoint: Endpoint) -> type[DataSource]:
    """The data source class of one job; its secret travels in the class, never in the options, which Spark prints."""

    class TickSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return "tick bigint"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  Spark's signature
            return TickReader(endpoint, str(self.options["uid"]))

    return TickSource
