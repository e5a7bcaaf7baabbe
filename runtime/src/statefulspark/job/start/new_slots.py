"""The table of slots that a job starts with, is rescaled to, or goes back with."""

from __future__ import annotations

from pyspark.sql import SparkSession

from statefulspark.coordinator.slots.notices import SlotNotices
from statefulspark.coordinator.slots.table import SlotTable
from statefulspark.job.spark.executors import executor_counter


def new_slots(spark: SparkSession, parallelism: int, slots_per_executor: int | None) -> SlotTable:
    """Return a table of slots none of which has started."""
    return SlotTable(parallelism, slots_per_executor=slots_per_executor, executors=executor_counter(spark), notices=SlotNotices())
