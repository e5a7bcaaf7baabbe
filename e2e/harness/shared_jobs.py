"""Running jobs that one test leaves to the next: starting a job takes longer than most of what tests do with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from e2e.harness.jobs import CountingJob, Load, end_jobs
from e2e.harness.kubectl import Kubectl, wait_for
from e2e.harness.timeouts import RECOVERY_S


class SharedJobs:
    """At most one running job at a time, which is replaced if a test failed, ended it, or needs another load or a new job.

    The oracle judges all output of a job since its start, so each test also covers what earlier tests did to the job.

    Args:
        kubectl: The namespace of shared jobs.
        make: Makes a job in it, by its name and load.
    """

    def __init__(self, kubectl: Kubectl, make: Callable[[str, Load], CountingJob]) -> None:
        self._kubectl = kubectl
        self._make = make
        self._job: CountingJob | None = None
        self._made = 0

    def take(self, load: Load, *, new: bool = False) -> CountingJob:
        """Returns a job that is STABLE with 2 slots in 2 executors, and has all keys of its load in a checkpoint.

        Args:
            load: What flows through the job.
            new: Start a job that no test has used.

        Raises:
            AssertionError: The job of the last test did not recover, or a new one did not start.
        """
        job, self._job = self._job, None
        if job is not None and not new and job.load == load and job.status():
            wait_for(f"{job.name} runs undisturbed", RECOVERY_S, partial(undisturbed, job), job.said)
        else:
            end_jobs(self._kubectl)
            self._made += 1
            job = self._make(f"counts-{self._made}", load)
            job.run_until_full()
        self._job = job
        return job

    def tidy(self) -> None:
        """Deletes the jobs that a test has started beside the shared one. Does not wait until they are gone."""
        end_jobs(self._kubectl, *([self._job.name] if self._job is not None else []))

    def drop(self) -> None:
        """Deletes all jobs of the namespace. The next test gets a new one."""
        self._job = None
        self.tidy()


def undisturbed(job: CountingJob) -> bool:
    """True if a job runs as when it was made; its pods may be others, and its code the other version."""
    status = job.status()
    as_made = status.get("lifecycleState") == "STABLE" and status.get("parallelism") == 2 and not status.get("transition")
    return as_made and len(job.pods("executor")) == 2
