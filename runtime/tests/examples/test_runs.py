"""The small examples as a newcomer runs them: by the command line, on a real Spark, from a folder that holds ``examples``."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
import yaml
from runtime.tests.depth import left_to_test_all

from .conftest import Load

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
NINE = int(datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp() * 1000)

SESSIONS = [
    ("ada", 3, NINE + 71 * MINUTE_MS),
    ("ada", 1, NINE + 2 * HOUR_MS),
    ("ben", 1, NINE + 50 * MINUTE_MS),
    ("ben", 2, NINE + 2 * HOUR_MS + 80_000),
]
"""Every session but cleo's, which the last watermark (11:55) leaves open."""

REPORTS = [
    ("0815", NINE + 3 * HOUR_MS, 150_000, 150_000, 1),
    ("4711", NINE + HOUR_MS // 2, 110_000, 60_000, 1),
    ("4711", NINE + HOUR_MS - 1000, 111_000, 60_000, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "output", "rows"),
    [("02-sessions", "out/sessions/output", SESSIONS), *left_to_test_all([("03-pyflink-port", "out/card-guard/output", REPORTS)])],
)
def test_an_example_runs_to_its_end_and_writes_what_can_be_worked_out_by_hand(
    load: Load, examples: Path, tmp_path: Path, example: str, output: str, rows: list[tuple[object, ...]]
) -> None:
    run(examples, tmp_path, example)
    files = load("01-flights/oracle.py").committed_files(tmp_path / output)
    found = pd.concat([pd.read_parquet(path) for path in files])
    assert sorted(found.itertuples(index=False, name=None)) == sorted(rows)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_orders_and_their_illegal_events_are_those_of_the_oracle(load: Load, examples: Path, tmp_path: Path) -> None:
    """Both outputs, row by row; a few illegal events are known by hand."""
    run(examples, tmp_path, "05-orders")
    oracle = load("05-orders/oracle.py")
    transitions, illegal = oracle.written(tmp_path / "out" / "orders")
    assert (transitions, illegal) == oracle.expected(examples / "05-orders" / "events")


def run(examples: Path, tmp_path: Path, example: str) -> None:
    """Run an example to its end in a folder of the test's own."""
    (tmp_path / "examples").symlink_to(examples)
    manifest = yaml.safe_load((examples / example / "job.yaml").read_text())
    manifest["spec"]["checkpointing"]["dir"] = f"file://{tmp_path}/checkpoints"
    manifest["spec"]["job"]["script"] = str(examples / example / manifest["spec"]["job"]["script"])
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(manifest))
    command = [str(Path(sys.executable).with_name("statefulspark")), "run", "job.yaml", "--until-idle", "--no-progress"]
    environment = {**os.environ, "STATEFULSPARK_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
