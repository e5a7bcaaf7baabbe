"""The tick source: a streaming source that starts a batch when a timer is due and no row has arrived.

Its offset is the time of the last tick that the coordinator requested. A tick is one row, which reaches every slot of its step.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from statefulspark.checkpoint.formats.pipeline import TICKS
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.pipeline.tick_reader import TickReader

FORMAT = TICKS


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
