"""A job that does not run now, as the commands show it: by its last run on this machine, or by its directory in storage."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from statefulspark.api_server.run.connection_files import home_directory, running_jobs
from statefulspark.cli.common.connect import ended_run, is_manifest
from statefulspark.cli.common.storage_options import storage_opener
from statefulspark.errors import InvalidInputError

if TYPE_CHECKING:
    from statefulspark.api_server.models.log import LogRecordModel
    from statefulspark.api_server.run.last_runs import LastRun
    from statefulspark.checkpoint.catalog import OpenStore
    from statefulspark.coordinator.history import JobHistory
    from statefulspark.logs.levels import LogLevel
    from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job in storage.

    Attributes:
        directory: URL or path of its directory, or of the checkpoint directory in which it is the only job.
        run: Its last run on this machine; None if the directory was given instead.
        opener: Opens the object store of a URL.
    """

    directory: str
    run: LastRun | None
    opener: OpenStore

    @property
    def name(self) -> str:
        """Name of the job, or of its directory."""
        return self.run.name if self.run is not None else Path(self.directory.rstrip("/")).name

    def history(self) -> JobHistory:
        """Read the history that the job stored.

        Raises:
            InvalidInputError: It stored none, or the directory has several jobs.
        """
        from statefulspark.job.history.storing import newest_history

        store = self.opener(self.directory)
        found = newest_history(store)
        if found is None and (only := self._only_job_below(store)) is not None:
            found = newest_history(only)
        if found is None:
            raise InvalidInputError(
                f"{store.url} contains no history of a job",
                field="JOB",
                remedy="Pass a job's directory, as `statefulspark list DIR` shows it",
            )
        return found

    def _only_job_below(self, store: ObjectStore) -> ObjectStore | None:
        from statefulspark.checkpoint.catalog import is_job_folder
        from statefulspark.checkpoint.formats.paths import folder_url

        stores = [(name, self.opener(folder_url(store.url, name))) for name in sorted(store.list_folders(""))]
        jobs = [(name, one) for name, one in stores if is_job_folder(one)]
        if len(jobs) > 1:
            names = ", ".join(name for name, _ in jobs)
            raise InvalidInputError(
                f"{store.url} has {len(jobs)} jobs ({names})", field="JOB", remedy=f"Name one: {folder_url(store.url, jobs[0][0])}"
            )
        return jobs[0][1] if jobs else None


def ended_job(job: str | None, endpoint: str | None = None, region: str | None = None, path_style: bool | None = None) -> EndedJob | None:
    """Return the job if it is a directory, or does not run and left a record of its last run on this machine; None for all others.

    Args:
        job: Name, manifest, URL of a driver, or directory; None for the only running job, or the one that ended last.
        endpoint: Overrides the run's, as do the next two.
        region: Region of the bucket.
        path_style: True to address buckets in the path of URLs.
    """
    if job is not None and _is_directory(job):
        return EndedJob(job, None, storage_opener(endpoint, region, path_style))
    run = ended_run(job)
    if run is None:
        return None
    opener = storage_opener(endpoint or run.endpoint, region or run.region, run.path_style if path_style is None else path_style)
    return EndedJob(run.directory, run, opener)


def stored_records(run: LastRun, *, records: int, level: LogLevel, slot: int | None, uid: str | None) -> list[LogRecordModel]:
    """Return the last log records of a run that is over, the oldest first.

    Args:
        run: The run.
        records: How many at most.
        level: Minimum level.
        slot: Only records of this slot.
        uid: Only records of this keyed step.
    """
    from statefulspark.api_server.models.log import LogRecordModel
    from statefulspark.logs.log_file import records_path
    from statefulspark.logs.tail import LogTail

    since = datetime.fromtimestamp(run.started_ms / 1000, UTC).isoformat()
    tail = LogTail.stored(records_path(run.name, os.environ, Path.home()), since)
    found, _ = tail.read(after=0, most=records, level=level.number, slot=slot, uid=uid)
    return [LogRecordModel.of(one) for one in found]


def _is_directory(job: str) -> bool:
    """True for a URL in storage or the path of a directory. A name of a job is taken for a directory only if no job of that name has run."""
    if job.startswith(("http://", "https://")) or is_manifest(job):
        return False
    return "/" in job or (
        Path(job).is_dir() and ended_run(job) is None and job not in running_jobs(home_directory(os.environ, Path.home()))
    )
