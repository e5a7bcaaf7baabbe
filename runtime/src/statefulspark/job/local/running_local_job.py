"""RunningLocalJob: the handle of a job that runs in a notebook."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from urllib.parse import unquote, urlsplit
from warnings import warn

from statefulspark.coordinator.controls import JobState
from statefulspark.errors import ClosedError, InvalidInputError
from statefulspark.job.local.collected_output import CollectedOutput
from statefulspark.job.local.interruptible import Background
from statefulspark.job.run.running import RunningJob
from statefulspark.process.api.output_tag import MAIN
from statefulspark.state_tables import read_arrow
from statefulspark.state_tables.read.frames import frame_of
from statefulspark.storage.local.working_folder import WorkingFolder

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
_STATE_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 60.0


class RunningLocalJob:
    """A job that runs in this notebook or shell; `LocalJob.start` makes it. ``with`` stops it at the end.

    If a method is interrupted (Ctrl-C, or the notebook's stop button), the job stops.
    """

    def __init__(
        self, name: str, job: RunningJob, folder: WorkingFolder, outputs: Mapping[str, CollectedOutput], ended: Callable[[], None]
    ) -> None:
        self._name = name
        self._job = job
        self._folder = folder
        self._outputs = dict(outputs)
        self._ended = ended
        self._gone = threading.Event()
        threading.Thread(target=self._clean_up, name=f"local-job-{name}", daemon=True).start()

    def __repr__(self) -> str:
        return f"<RunningLocalJob {self._name!r}: {'running' if self.is_active else self._job.wait(0).value.lower()}>"

    @property
    def name(self) -> str:
        """The job's name."""
        return self._name

    @property
    def is_active(self) -> bool:
        """True until the job has been stopped, has failed or has finished."""
        return not self._job.wait(0).final

    @property
    def parallelism(self) -> int:
        """Number of slots."""
        return len(self._job.status().slots)

    def process_all_available(self, timeout_s: float = 600.0) -> None:
        """Wait until all rows that the sources have now are processed, and all timers that are due have fired.

        Like PySpark's ``processAllAvailable``, it may not return in time if rows arrive faster than they are processed; then call
        `output` after a while instead.

        Args:
            timeout_s: Maximum time to wait, in seconds.

        Raises:
            UserFunctionError: A function has raised; carries its traceback. The job has ended.
            StatefulSparkError: The job has failed for another reason.
            UnavailableError: Not all was processed in time. The job runs on.
            ClosedError: The job has been stopped.
        """
        self._check_not_stopped()
        late = f"the job has not processed all available rows within {timeout_s:.0f} s and runs on; call output() for the rows so far"
        self._wait_for(Background(self._job.wait_until_idle, "local-job-wait"), timeout_s, late)
        if (failure := self._job.failure) is not None:
            self._gone.wait(_STOP_TIMEOUT_S)
            raise failure.with_traceback(None) from None
        self._check_not_stopped()

    def output(self, name: str = MAIN) -> pd.DataFrame:
        """Return the rows so far as a pandas DataFrame, in the order of their batches. It works after the end of the job too.

        Columns have Arrow types, so a null stays a null and an integer an integer. A warning says so if the job has emitted more rows than are kept
        (``rows_max`` of `LocalJob.start`).

        Args:
            name: An output of a step with side outputs; ``main`` otherwise.

        Raises:
            InvalidInputError: The job has no such output, or its stream writes to a sink of its own.
        """
        found = self._outputs.get(name)
        if found is None:
            raise InvalidInputError(
                f"there is no output {name!r}" if self._outputs else "the stream has a sink of its own, which has its rows",
                field="name",
                remedy=f"The outputs are {', '.join(self._outputs)}"
                if self._outputs
                else "Read the sink, or start the stream without writeStream",
            )
        if found.dropped:
            warn(
                f"the oldest {found.dropped} rows of the output {name!r} are no longer kept: pass rows_max to start(), or a sink",
                stacklevel=2,
            )
        return frame_of(found.table())

    def state(self, uid: str, name: str) -> pd.DataFrame:
        """Return the present state of a step as a table, with a row per key, or per entry of a list or map.

        It takes a savepoint between two batches and reads it. Call `process_all_available` first if all rows must be in it.

        Args:
            uid: The step.
            name: The state; ``event-timers`` and ``processing-timers`` are the timers of a step.

        Raises:
            InvalidInputError: No batch has been processed, or there is no such state; the message lists what exists.
            ClosedError: The job has ended.
        """
        self._check_not_stopped()
        if (failure := self._job.failure) is not None:
            raise ClosedError(
                f"the job {self._name!r} has failed, and its state is gone. process_all_available() raises the error"
            ) from failure
        if self._job.status().batch < 0:
            raise InvalidInputError(
                "no batch has been processed, so there is no state", field="state", remedy="Call process_all_available() first"
            )
        late = f"the state could not be read within {_STATE_TIMEOUT_S:.0f} s"
        return self._wait_for(Background(lambda: self._state(uid, name), "local-job-state"), _STATE_TIMEOUT_S + 10, late)

    def _state(self, uid: str, name: str) -> pd.DataFrame:
        taken = self._job.trigger_savepoint((self._folder.path / "savepoints").as_uri(), _STATE_TIMEOUT_S)
        try:
            return frame_of(read_arrow(taken.path, uid, name, unpickle=True))
        finally:
            shutil.rmtree(Path(unquote(urlsplit(taken.path).path)), ignore_errors=True)

    def stop(self) -> None:
        """Stop the query and the slots, and remove the job's state and files. The session stays. A second call does nothing.

        Raises:
            UnavailableError: The job did not end in time; it is still being stopped.
        """
        stopping = Background(self._stop, "local-job-stop")
        stopping.result(
            _STOP_TIMEOUT_S, f"the job {self._name!r} has not stopped within {_STOP_TIMEOUT_S:.0f} s, and is still being stopped"
        )

    def stop_here(self) -> None:
        """Stop the job without a thread, as the interpreter's exit requires."""
        self._stop()

    def _stop(self) -> None:
        self._job.cancel()
        self._gone.wait(_STOP_TIMEOUT_S)

    def _wait_for(self, work: Background[T], timeout_s: float, late: str) -> T:
        try:
            return work.result(timeout_s, late)
        except KeyboardInterrupt:
            self.stop()
            raise

    def _check_not_stopped(self) -> None:
        state = self._job.wait(0)
        if state is JobState.CANCELED:
            raise ClosedError(f"the job {self._name!r} has been stopped. Start it again with start()")

    def _clean_up(self) -> None:
        self._job.wait(None)
        try:
            self._ended()
        finally:
            self._folder.close()
            self._gone.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
