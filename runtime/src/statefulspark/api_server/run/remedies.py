"""What the user can do after a job has ended: one sentence per reason, with the command to run."""

from __future__ import annotations

from statefulspark.api_server.instants import at
from statefulspark.api_server.models.job import CheckpointModel, StatusModel
from statefulspark.coordinator.controls import CheckpointInfo, JobState, JobStatus, PendingTimers

_BY_REASON = {
    "UserFunction": "Fix the function (its traceback is above), then run the manifest again",
    "SlotCrashed": "Correct what the message names, then run the manifest again",
    "InvalidInput": "Change what the message names, then run the manifest again",
    "NotRestorable": "State and job do not fit each other: undo the change the message names, or start without the state",
    "Unavailable": "Correct what the message names, or make sure that storage, sources and sink answer, then run the manifest again",
    "JvmLost": "Run the manifest again",
    "CorruptData": "Choose an older checkpoint (`statefulspark checkpoints DIR` lists them) and run with --from PATH",
    "IncompatibleFormat": "Run with the release that wrote the checkpoint, or choose another one with --from PATH",
    "Fenced": "Another start of this job has taken over; this one has nothing left to do",
    "Conflict": "Another process changed the job's files at the same time; run the manifest again",
}


def newest(status: JobStatus | StatusModel) -> CheckpointInfo | CheckpointModel | None:
    """Return the newest checkpoint or savepoint a status knows."""
    known = [info for info in (status.last_checkpoint, status.last_savepoint) if info is not None]
    return max(known, key=lambda info: (info.batch, info.completed_ms), default=None)


def what_to_do(status: JobStatus) -> str:
    """Return what to do next, one or two sentences; empty when there is nothing to do."""
    if status.state is JobState.SUSPENDED:
        info = newest(status)
        return "Run the manifest again to resume." + (f" Its state is kept in {info.path}." if info else "")
    if status.state is JobState.FINISHED:
        return "\n".join(_unfired(uid, timers) for uid, timers in status.timers.items())
    if status.state is JobState.CANCELED:
        return after_cancel(status)
    if status.state is not JobState.FAILED:
        return ""
    reason = status.error.reason if status.error else ""
    first = _BY_REASON.get(reason, "This is a defect of statefulspark: please report it with the log. Run the manifest again to resume")
    if reason in {"Fenced", "CorruptData", "IncompatibleFormat", "NotRestorable"}:
        return first + "."
    after = f"after batch {status.batch}" if status.batch >= 0 else "at the beginning"
    return f"{first}: it resumes {after}, nothing is lost."


def after_cancel(status: JobStatus | StatusModel) -> str:
    """Return what a canceled job has left in storage, and how to continue."""
    if status.canceled is not None and status.canceled.deleted:
        return (
            "Its checkpoints and changelogs were deleted (checkpointing.retention.onCancellation is DELETE); savepoints stay. "
            "Run the manifest again to start with empty state, or with --from SAVEPOINT to restore a savepoint."
        )
    if status.canceled is not None and status.canceled.problem is not None:
        return (
            f"Its checkpoints and changelogs were not all deleted: {status.canceled.problem}. "
            "Make sure that storage answers, then delete the job's directory in checkpointing.dir."
        )
    info = newest(status)
    kept = f" Its last {info.kind} is {info.path}." if info is not None else ""
    after = f"after batch {status.batch}" if status.batch >= 0 else "at the beginning"
    return f"No checkpoint was taken. Its state is kept: run the manifest again to resume {after}.{kept}"


def _unfired(uid: str, timers: PendingTimers) -> str:
    """Return which timers of a finished job have not fired, and what fires them."""
    number = "Timers" if timers.number is None else f"About {timers.number} timers"
    sentence = f"{number} of uid {uid!r} have not fired"
    if timers.next_event_ms is not None:
        sentence += (
            f"; the next event-time timer is for {at(timers.next_event_ms)}. Event-time timers fire when later rows advance the watermark: "
            "run the manifest again with more input, or with --until-idle --drain to fire all of them"
        )
    if timers.next_processing_ms is not None:
        sentence += f"; the next processing-time timer is for {at(timers.next_processing_ms)} and fires while the job runs"
    return sentence + "."
