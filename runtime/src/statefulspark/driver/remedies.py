"""What a person does after a job has ended: one sentence per reason, with the command to type."""

from __future__ import annotations

from statefulspark.job.controls import CheckpointInfo, JobState, JobStatus

_BY_REASON = {
    "UserFunction": "Mend the function (its traceback is above), then run the manifest again",
    "InvalidInput": "Change what the message names, then run the manifest again",
    "NotRestorable": "State and job do not fit each other: undo the change the message names, or start without the state",
    "Unavailable": "Make sure that storage answers, then run the manifest again",
    "CorruptData": "Choose an older checkpoint (`statefulspark checkpoints DIR` lists them) and run with --from PATH",
    "IncompatibleFormat": "Run with the release that wrote the checkpoint, or choose another one with --from PATH",
    "Fenced": "Another start of this job has taken over; this one has nothing left to do",
    "Conflict": "Somebody else changed the job's files at the same time; run the manifest again",
}


def newest(status: JobStatus) -> CheckpointInfo | None:
    """Return the newest checkpoint or savepoint a status knows."""
    known = [info for info in (status.last_checkpoint, status.last_savepoint) if info is not None]
    return max(known, key=lambda info: (info.batch, info.completed_ms), default=None)


def what_to_do(status: JobStatus) -> str:
    """Return what to do next, one or two sentences; empty when there is nothing to do."""
    if status.state is JobState.SUSPENDED:
        info = newest(status)
        return "Run the manifest again to go on." + (f" Its state is kept in {info.path}." if info else "")
    if status.state is not JobState.FAILED:
        return ""
    reason = status.error.reason if status.error else ""
    first = _BY_REASON.get(reason, "This is a defect of statefulspark: please report it with the log. Run the manifest again to go on")
    if reason in {"Fenced", "CorruptData", "IncompatibleFormat", "NotRestorable"}:
        return first + "."
    after = f"after batch {status.batch}" if status.batch >= 0 else "at the beginning"
    return f"{first}: it goes on {after}, nothing is lost."
