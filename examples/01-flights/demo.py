"""The demo: real flights through a stateful stream, an executor killed on the way, rescaled 2 to 3, output proved against pandas.

``make demo`` runs it. Exit code 0 means that the output equals what pandas computes, 1 that anything went wrong.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import oracle
import pandas as pd
import plots
import prepare
import yaml
from displays import Display, summary
from rich.console import Console
from rich.markup import escape
from runs import JobRun, RunFailedError

from statefulspark.api_server.models.job import StatusModel
from statefulspark.errors import StatefulSparkError

HERE = Path(__file__).parent
FOLDER = Path("out/demo")
NAME = "flights"
KILL_AT = 1 / 3
RESCALE_AT = 2 / 3
PARALLELISM_AFTER = 3
LOOK_EVERY_S = 0.1
COUNT_EVERY_S = 0.4
AFTERMATH_S = 15.0  # batches just after a kill or rescale may still be slow: Python workers of a new executor start cold
RESCALE_TIMEOUT_S = 120.0
TOTAL_TIMEOUT_S = 600.0


@dataclass(slots=True)
class Story:
    """What happened to the job on the way; times are ``time.monotonic()`` seconds."""

    restarts_before: int = 0
    killed_s: float | None = None
    recovered_s: float | None = None
    rescale: threading.Thread | None = None
    rescale_asked_s: float | None = None
    rescale_answered_s: float | None = None
    rescaled_s: float | None = None
    errors: list[str] = field(default_factory=list)


def watch(run: JobRun, display: Display, rows: int) -> Story:
    """Follow the job to its end, and do to it what the demo promises."""
    story = Story()
    deadline_s = time.monotonic() + TOTAL_TIMEOUT_S
    counted_s = 0.0
    while not run.ended():
        if time.monotonic() > deadline_s:
            raise RunFailedError(f"the job did not finish within {TOTAL_TIMEOUT_S:.0f} s; the end of {run.log}:\n{run.log_tail()}")
        status = run.look()
        if status is not None:
            display.show(status)
            disturb(story, run, display, status, status.input_rows / rows)
        if time.monotonic() - counted_s > COUNT_EVERY_S:
            counted_s = time.monotonic()
            run.count_timers()
        time.sleep(LOOK_EVERY_S)
    if story.rescale is not None:
        story.rescale.join(RESCALE_TIMEOUT_S)
    return story


def disturb(story: Story, run: JobRun, display: Display, status: StatusModel, done: float) -> None:
    """Kill and rescale when their time has come, and notice when the job has got over it."""
    if story.killed_s is None and done >= KILL_AT:
        kill(story, run, display, status)
    elif story.killed_s is not None and story.recovered_s is None and recovered(story, run, status):
        story.recovered_s = time.monotonic()
        display.event(f"[green]recovered[/green]: batch {status.batch} committed {story.recovered_s - story.killed_s:.1f} s after the kill")
    elif story.recovered_s is not None and story.rescale is None and done >= RESCALE_AT:
        display.event(f"[yellow]rescale[/yellow] {status.parallelism} to {PARALLELISM_AFTER} slots, asked of the driver API")
        story.rescale_asked_s = time.monotonic()
        story.rescale = threading.Thread(target=rescale, args=(story, run), daemon=True)
        story.rescale.start()
    elif story.rescale_answered_s is not None and story.rescaled_s is None and last_commit_s(run) > story.rescale_answered_s:
        story.rescaled_s = last_commit_s(run)
        display.event(f"[green]rescaled[/green]: batch {status.batch} committed by {status.parallelism} slots")


def kill(story: Story, run: JobRun, display: Display, status: StatusModel) -> None:
    """End one executor without warning."""
    story.restarts_before = sum(slot.epoch for slot in status.slots)
    pid, slots = run.kill_executor(status.slots)
    story.killed_s = time.monotonic()
    owned = f", which ran slot{'s' if len(slots) > 1 else ''} {' and '.join(map(str, slots))}" if slots else ""
    display.event(f"[red]SIGKILL[/red] to executor JVM {pid}{owned}")


def recovered(story: Story, run: JobRun, status: StatusModel) -> bool:
    """Whether the lost slot runs again, as a new incarnation, and a batch was committed since the kill."""
    again = sum(slot.epoch for slot in status.slots) > story.restarts_before and all(slot.state == "RUNNING" for slot in status.slots)
    return again and story.killed_s is not None and last_commit_s(run) > story.killed_s


def rescale(story: Story, run: JobRun) -> None:
    """Ask for more slots and wait for the answer (in a thread of its own)."""
    try:
        with run.client() as client:
            client.rescale(PARALLELISM_AFTER, timeout_s=RESCALE_TIMEOUT_S)
    except StatefulSparkError as error:
        story.errors.append(f"rescale was refused: {error}")
    else:
        story.rescale_answered_s = time.monotonic()


def last_commit_s(run: JobRun) -> float:
    """When the newest batch was seen committed."""
    return run.timeline.commits[-1][0] if run.timeline.commits else 0.0


def closing_lines(run: JobRun, story: Story, prepared: prepare.Prepared, found: pd.DataFrame, seconds: float) -> list[tuple[str, str]]:
    """Say in numbers what happened."""
    timeline = run.timeline
    idle = int((found.kind == "idle").sum())
    lines = [
        ("rows in", f"{prepared.rows:,} flights; {prepared.without_tailnum:,} have no tail number and are left out"),
        ("rows out", f"{len(found):,}: {len(found) - idle:,} legs and {idle:,} times an idle aircraft"),
        ("timers", f"{timeline.timers_fired:,} fired; legs deleted the others"),
        ("time", f"{seconds:.0f} s for {len(timeline.commits)} batches, usually {timeline.usual_gap_s():.1f} s from one to the next"),
    ]
    if story.killed_s is not None and story.recovered_s is not None:
        pause = timeline.longest_gap_s(story.killed_s, story.recovered_s + AFTERMATH_S)
        lines.append(
            ("executor killed", f"recovered after {story.recovered_s - story.killed_s:.1f} s; longest pause in output {pause:.1f} s")
        )
    if story.rescale_asked_s is not None and story.rescaled_s is not None:
        pause = timeline.longest_gap_s(story.rescale_asked_s, story.rescaled_s + AFTERMATH_S)
        lines.append(("rescaled 2 to 3", f"longest pause in output {pause:.1f} s"))
    if timeline.checkpoints:
        newest = timeline.checkpoints[max(timeline.checkpoints)]
        uploaded = sum(each.uploaded_bytes for each in timeline.checkpoints.values())
        sizes = f"{megabytes(uploaded)} uploaded in all; the last one stands for {megabytes(newest.size_bytes)} of files"
        lines.append(("checkpoints", f"{newest.id} taken; {sizes}"))
    return [*lines, ("output", str(FOLDER / "output")), ("picture", str(FOLDER / "flights.png"))]


def megabytes(size_bytes: int) -> str:
    """Bytes for people."""
    return f"{size_bytes / 1e6:.1f} MB"


def unfinished(story: Story) -> list[str]:
    """What the demo promised and did not do."""
    wanted = {
        "no executor was killed": story.killed_s,
        "the job did not recover from the kill": story.recovered_s,
        "no rescale": story.rescaled_s,
    }
    return [*story.errors, *(text for text, at_s in wanted.items() if at_s is None)]


def write_manifest(folder: Path) -> Path:
    """Copy ``job.yaml`` with what differs from machine to machine: checkpoints go into the demo's own folder, by its absolute path."""
    manifest = yaml.safe_load((HERE / "job.yaml").read_text())
    manifest["spec"]["job"]["script"] = str(HERE.absolute() / "flights.py")
    manifest["spec"]["checkpointing"]["dir"] = (folder / "checkpoints").absolute().as_uri()
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))
    return path


def demo(console: Console) -> bool:
    """Prepare, run, disturb, prove and draw; True when everything held."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    prepared = prepare.prepare(FOLDER / "input")
    console.print(f"{prepared.rows:,} flights of 2013 in {prepared.files} files, one per day, in event-time order")
    started_s = time.monotonic()
    keyed = prepared.rows - prepared.without_tailnum
    with JobRun(write_manifest(FOLDER), NAME, FOLDER) as run, Display(console, keyed) as display:
        story = watch(run, display, keyed)
        seconds = time.monotonic() - started_s
        display.event("the job has ended; comparing its output with pandas")
    found = oracle.read_output(FOLDER / "output")
    verdict = oracle.compare(oracle.expected(oracle.published()), found)
    plots.draw(found, FOLDER / "flights.png")
    failures = unfinished(story)
    title = f"{prepared.rows:,} flights, one executor killed, rescaled 2 to 3"
    summary(console, closing_lines(run, story, prepared, found, seconds), str(verdict), title=title, proved=verdict.equal)
    for failure in failures:
        console.print(f"[red]demo incomplete:[/red] {escape(failure)}", highlight=False)
    return verdict.equal and not failures


def main() -> int:
    """Run the demo with errors a person can read."""
    console = Console()
    try:
        return 0 if demo(console) else 1
    except (RunFailedError, StatefulSparkError) as error:
        console.print(f"[red]demo failed:[/red] {escape(str(error))}", highlight=False)
    except KeyboardInterrupt:
        console.print("[red]stopped[/red]; the job was ended")
    return 1


if __name__ == "__main__":
    sys.exit(main())
