"""The order states of examples/05-orders, without Spark: the function's outputs are the oracle's, however rows fall into batches."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path

import pandas as pd
import pytest

from statefulspark.testing import KILL_DRIVER, KILL_DRIVER_BETWEEN_OUTPUTS, RESCALE, RETRY_BATCH, KeyedProcessHarness, TestingJob

from .conftest import Load

INPUT, OUTPUT = "order STRING, at TIMESTAMP, event STRING", "order STRING, at_ms BIGINT, was STRING, became STRING"
EIGHT = 8 * 3_600_000
"""Event times by hand count from the first of January 1970 at 8."""


def test_an_order_by_hand(load: Load) -> None:
    """Paid, shipped twice, and forgotten until it expires, with an event that comes after that."""
    orders = load("05-orders/orders.py")
    with KeyedProcessHarness(orders.Orders(), INPUT, OUTPUT, key="order", event_time="at", side_outputs=[orders.ILLEGAL]) as test:
        for number, event in enumerate(["created", "paid", "shipped", "shipped"]):
            test.process_element(("a", event), EIGHT + number)
        test.process_element(("b", "paid"), EIGHT)
        test.process_element(("b", "created"), EIGHT)
        test.process_watermark(EIGHT + orders.DAY_MS)
        test.process_element(("b", "paid"), EIGHT + orders.DAY_MS + 1)
        assert test.get_output() == [
            ("a", EIGHT, None, "created"),
            ("a", EIGHT + 1, "created", "paid"),
            ("a", EIGHT + 2, "paid", "shipped"),
            ("b", EIGHT, None, "created"),
            ("b", EIGHT + orders.DAY_MS, "created", "expired"),
        ]
        assert [(row.order, row.was, row.event) for row in test.get_side_output(orders.ILLEGAL)] == [
            ("a", "shipped", "shipped"),
            ("b", None, "paid"),
            ("b", "expired", "paid"),
        ]


@pytest.mark.parametrize("seed", range(3))
def test_the_job_writes_what_the_oracle_says_whatever_fails(load: Load, examples: Path, tmp_path: Path, seed: int) -> None:
    """Random batches with a failure after each; the watermark of an hour and the end of the events close the same orders."""
    orders, oracle = load("05-orders/orders.py"), load("05-orders/oracle.py")
    folder = examples / "05-orders" / "events"
    events = [json.loads(line) for path in sorted(folder.glob("*.json")) for line in path.read_text().splitlines()]
    rows = sorted((datetime.fromisoformat(each["at"]).replace(tzinfo=None), each["order"], each["event"]) for each in events)
    chance = random.Random(seed)
    items: list[object] = []
    for at, order, event in rows:
        items.append((order, at, event))
        if chance.random() < 0.15:
            items.append(chance.choice([KILL_DRIVER, KILL_DRIVER_BETWEEN_OUTPUTS, RESCALE(3), RETRY_BATCH]))
    with TestingJob(
        orders.Orders(), INPUT, OUTPUT, key="order", event_time="at", watermark_ms=3_600_000, side_outputs=[orders.ILLEGAL], folder=tmp_path
    ) as job:
        job.run(items)
        found = [
            (order, int(pd.Timestamp(at, tz="UTC").timestamp() * 1000), was, event)
            for order, at, was, event in job.get_side_output(orders.ILLEGAL)
        ]
        assert (sorted(job.output, key=str), sorted(found, key=str)) == oracle.expected(folder)
