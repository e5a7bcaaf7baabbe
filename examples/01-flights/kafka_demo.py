"""The demo with Kafka: real flights from one topic to another, an executor killed and the broker killed on the way, output proved against pandas.

``make demo-kafka`` runs it. The broker is a real one, from Maven's jars. Exit code 0 means that a ``read_committed`` consumer sees what pandas computes,
each row once and the legs of each aircraft in order; 1 means that anything went wrong.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import oracle
import pandas as pd
import prepare
import yaml
from confluent_kafka import Message
from demo import LOOK_EVERY_S, TOTAL_TIMEOUT_S, Story, kill, last_commit_s, recovered
from displays import Display, summary
from rich.console import Console
from rich.markup import escape
from runs import JobRun, RunFailedError

from statefulspark.connectors.installed import add_connector
from statefulspark.errors import StatefulSparkError

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1]))  # the tests' broker

from runtime.tests.kafka.broker import Broker, running_broker  # noqa: E402

FOLDER = Path("out/demo-kafka")
NAME = "flights"
PARTITIONS = 4
ROWS_PER_BATCH = 10_000
KILL_EXECUTOR_AT = 1 / 4
KILL_BROKER_AT = 1 / 2
BROKER_DOWN_S = 5.0


def records_of(flights: pd.DataFrame) -> list[tuple[str | None, str]]:
    """Key and value of each flight: its aircraft, and all that the job reads."""
    rows = json.loads(flights.drop(columns="scheduled").to_json(orient="records"))
    return [(row["tailnum"], json.dumps(row)) for row in rows]


def final_watermark(messages: Sequence[Message]) -> pd.Timestamp:
    """The watermark at the end: an hour before the last flight of the partition that ends first."""
    last: dict[int, int] = {}
    for message in messages:
        flight = json.loads(value_of(message))
        if flight["tailnum"] is not None:
            last[message.partition()] = flight["scheduled_ms"]
    return pd.Timestamp(min(last.values()), unit="ms", tz="UTC") - oracle.WATERMARK_DELAY


def value_of(message: Message) -> bytes:
    """The value; a record without one is none of ours."""
    value = message.value()
    if value is None:
        raise ValueError(f"{message.topic()}/{message.partition()} offset {message.offset()}: the record has no value")
    return value


def output_of(messages: Sequence[Message]) -> pd.DataFrame:
    """The job's output as the oracle compares it."""
    rows = pd.DataFrame([json.loads(value_of(message)) for message in messages])
    return oracle.tidy(rows.assign(at=pd.to_datetime(rows["at_ms"], unit="ms", utc=True)))


def out_of_order(messages: Sequence[Message]) -> list[str]:
    """Aircraft whose legs do not stand in the topic in the order in which they were flown."""
    seen: dict[str, int] = {}
    wrong = {}
    for message in messages:
        row = json.loads(value_of(message))
        if row["kind"] == "leg":
            wrong.update({row["tailnum"]: None} if row["leg"] != seen.get(row["tailnum"], 0) + 1 else {})
            seen[row["tailnum"]] = row["leg"]
    return list(wrong)


def write_manifest(folder: Path, servers: str, source: str, target: str) -> Path:
    """Copy ``job.yaml`` with the pipeline that reads and writes Kafka."""
    manifest = yaml.safe_load((HERE / "job.yaml").read_text())
    manifest["spec"]["job"] = {"script": str(HERE.absolute() / "kafka_flights.py"), "args": [servers, source, target, str(ROWS_PER_BATCH)]}
    manifest["spec"]["checkpointing"]["dir"] = (folder / "checkpoints").absolute().as_uri()
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(manifest, sort_keys=False))
    return path


def watch(run: JobRun, broker: Broker, display: Display, rows: int) -> tuple[Story, list[tuple[str, str]]]:
    """Follow the job to its end, kill an executor and the broker on the way; returns what to tell about it."""
    story = Story()
    told: list[tuple[str, str]] = []
    broker_killed_s = broker_back_s = None
    deadline_s = time.monotonic() + TOTAL_TIMEOUT_S
    while not run.ended():
        if time.monotonic() > deadline_s:
            raise RunFailedError(f"the job did not finish within {TOTAL_TIMEOUT_S:.0f} s; the end of {run.log}:\n{run.log_tail()}")
        status = run.look()
        if status is not None:
            display.show(status)
            done = status.input_rows / rows
            if story.killed_s is None and done >= KILL_EXECUTOR_AT:
                kill(story, run, display, status)
            elif story.killed_s is not None and story.recovered_s is None and recovered(story, run, status):
                story.recovered_s = time.monotonic()
                pause_s = story.recovered_s - story.killed_s
                display.event(f"[green]recovered[/green]: batch {status.batch} committed {pause_s:.1f} s after the kill")
                told.append(("executor killed", f"recovered after {pause_s:.1f} s"))
            elif story.recovered_s is not None and broker_killed_s is None and done >= KILL_BROKER_AT:
                broker_killed_s = time.monotonic()
                broker.kill()
                display.event(f"[red]SIGKILL[/red] to the broker, in the middle of a batch; it comes back in {BROKER_DOWN_S:.0f} s")
                time.sleep(BROKER_DOWN_S)
                broker.start()
                broker_back_s = time.monotonic()
                display.event("the broker is back, with its data and its address")
            elif broker_killed_s is not None and broker_back_s is not None and len(told) == 1 and last_commit_s(run) > broker_back_s:
                pause_s = last_commit_s(run) - broker_killed_s
                display.event(f"[green]recovered[/green]: batch {status.batch} committed {pause_s:.1f} s after the broker was killed")
                told.append(("broker killed", f"away for {broker_back_s - broker_killed_s:.1f} s; the next batch after {pause_s:.1f} s"))
        time.sleep(LOOK_EVERY_S)
    return story, told


def demo(console: Console) -> bool:
    """Start Kafka, fill a topic, run, disturb and prove; True when everything held."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "broker").mkdir(parents=True)
    add_connector("kafka", console.print)
    flights = prepare.in_event_time_order(prepare.read_flights())
    keyed = int(flights["tailnum"].notna().sum())
    with running_broker((FOLDER / "broker").absolute()) as broker:
        source, target = broker.topic(PARTITIONS), broker.topic(PARTITIONS)
        broker.produce(source, records_of(flights))
        console.print(f"{len(flights):,} flights of 2013 in {PARTITIONS} partitions of a topic, at a broker on {broker.address}")
        started_s = time.monotonic()
        manifest = write_manifest(FOLDER, broker.address, source, target)
        with JobRun(manifest, NAME, FOLDER) as run, Display(console, keyed) as display:
            _, told = watch(run, broker, display, keyed)
            seconds = time.monotonic() - started_s
            display.event("the job has ended; reading its output as a read_committed consumer, and comparing it with pandas")
        read = broker.read(source)
        written = broker.read(target)
    found = output_of(written)
    verdict = oracle.compare(oracle.expected(oracle.published(), final_watermark(read)), found)
    disordered = out_of_order(written)
    lines = [
        ("rows in", f"{len(read):,} records; {len(flights) - keyed:,} flights have no tail number and are left out"),
        ("rows out", f"{len(found):,} committed records: {int((found.kind == 'leg').sum()):,} legs, the others times an idle aircraft"),
        (
            "time",
            f"{seconds:.0f} s for {len(run.timeline.commits)} batches, usually {run.timeline.usual_gap_s():.1f} s from one to the next",
        ),
        *told,
        ("order", f"{len(disordered)} aircraft out of order" if disordered else "the legs of each aircraft are in order"),
    ]
    held = verdict.equal and not disordered
    summary(console, lines, str(verdict), title=f"{len(flights):,} flights through Kafka, executor and broker killed", proved=held)
    if len(told) < 2:
        console.print("[red]demo incomplete:[/red] the job ended before executor and broker were killed and back", highlight=False)
    return held and len(told) == 2


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
