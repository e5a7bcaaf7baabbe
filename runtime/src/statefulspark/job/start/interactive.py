"""Interactive: what a job in a notebook has instead of a program and a Spark of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from statefulspark.pipeline.script import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Interactive:
    """The parts of a job that runs on a session of the user's."""

    session: SparkSession
    """It is not stopped with the job."""
    pipeline: Pipeline
    """Builds the query from what the notebook has defined."""
    query_settings: Callable[[], AbstractContextManager[None]]
    """Sets what a query needs in the session, while one is built and started."""
    folder: Path
    """For Spark's checkpoint location and the files of slots. The caller removes it when the job has ended."""

    @property
    def slot_options(self) -> dict[str, Any]:
        """Keyword options of SlotConfig that differ from the manifest's."""
        return {"local_dir": str(self.folder / "slots")}
