"""Delta: the program and the manifest of docs/how-to/lakes.md write each batch once, although the driver is killed."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.kill, pytest.mark.exhaustive, pytest.mark.timeout(1500)]

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "lakes.md").read_text()
FILES = 6
Row = tuple[str, int, int]


def section(title: str) -> tuple[str, dict[str, Any]]:
    """Program and manifest of a section of the page."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (manifest,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    return program, yaml.safe_load(manifest)


def write_orders(folder: Path) -> list[Row]:
    """Files of orders, each a batch of its own; returns the rows that a table must have, by adding up."""
    numbers = random.Random(7)
    totals: dict[str, tuple[int, int]] = {}
    expected: list[Row] = []
    folder.mkdir()
    for number in range(FILES):
        orders = [(f"account-{numbers.randrange(20)}", numbers.randrange(1000)) for _ in range(200)]
        path = folder / f"{number:04d}.json"
        path.write_text("".join(json.dumps({"account": account, "cents": cents}) + "\n" for account, cents in orders))
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in the order of their times
        for account, cents in orders:
            count, before = totals.get(account, (0, 0))
            totals[account] = (count + 1, before + cents)
        expected += [(account, *totals[account]) for account in {account for account, _ in orders}]
    return expected


def run_killed_then_whole(folder: Path, program: str, manifest: dict[str, Any]) -> None:
    """Run the job twice: the first driver dies when it begins a batch, so the one before is in the table, but in no record of the job."""
    script, path, done = folder / "program.py", folder / "job.yaml", folder / "done"
    script.write_text(program)
    done.mkdir()
    manifest["spec"]["job"]["script"] = str(script)
    manifest["spec"]["checkpointing"]["dir"] = f"file://{folder}/checkpoints"
    path.write_text(yaml.safe_dump(manifest))
    environment = os.environ | {
        "STATEFULSPARK_HOME": str(folder / "home"),
        "STATEFULSPARK_FAILPOINTS": "driver.begin:4",
        "STATEFULSPARK_FAILPOINTS_DONE": str(done),
    }
    command = [sys.executable, "-m", "statefulspark.cli.main", "run", str(path), "--no-progress", "--until-idle"]
    log = folder / "driver.log"
    codes = []
    for _ in range(2):
        with log.open("ab") as output:
            codes.append(
                subprocess.run(command, env=environment, stdout=output, stderr=output, cwd=folder, timeout=600, check=False).returncode
            )
    assert codes[0] != 0, "the first driver was not killed"
    assert codes[1] == 0, log.read_text(errors="replace")[-6000:]


def test_delta(tmp_path: Path) -> None:
    """With the `deltalake` that the page names; read as Delta's protocol says."""
    table, expected = tmp_path / "totals", write_orders(tmp_path / "orders")
    program, manifest = section("Delta")
    manifest["spec"]["job"]["args"] = [str(tmp_path / "orders"), str(table)]
    run_killed_then_whole(tmp_path, program, manifest)
    actions = [json.loads(line) for path in sorted(table.glob("_delta_log/*.json")) for line in path.read_text().splitlines()]
    assert [action["txn"]["version"] for action in actions if "txn" in action] == list(range(FILES))
    files = [action["add"]["path"] for action in actions if "add" in action]
    found = [tuple(row.values()) for name in files for row in pq.read_table(table / name).to_pylist()]
    assert Counter(found) == Counter(expected)
