"""The tick source: a streaming source that starts a batch when a timer is due although no row has arrived.

Its offset is the time of the newest tick the coordinator asked for. A tick is one row; it reaches every slot of its step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from statefulspark.errors import StatefulSparkError, UnavailableError
from statefulspark.exchange.config import Endpoint
from statefulspark.exchange.task import peer

FORMAT = "statefulspark-ticks"
_POLL_S = 0.05
_FAILURES_MAX = 4
"""As often as Spark tries a task: so often storage may fail, each time after retries of its own, before the query does."""


class TickReader(DataSourceStreamReader):
    """Asks the coordinator, in Spark's source process on the driver, whether a timer of ``uid`` is due."""

    def __init__(self, endpoint: Endpoint, uid: str) -> None:
        self._endpoint = endpoint
        self._uid = uid

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        return {"tick": 0}

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802  Spark's name
        try:
            answer = peer(self._endpoint).call("tick", {"uid": self._uid}, timeout_s=5)
        except StatefulSparkError:
            return {"tick": 0}  # the driver is on its way out
        return {"tick": int(answer["tick"])}

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
                if "wait" not in peer(self._endpoint).call("planned", {}, timeout_s=120):
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
