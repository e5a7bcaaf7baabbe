"""Side outputs on a real Spark: every row in the output of its tag, once, whatever sinks read of a batch and however often it runs."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from statefulspark.errors import InvalidInputError
from statefulspark.testing.schemas import arrow_schema

from .oracles import START_MS, Input, row
from .side_outputs import IDLE, INPUT, REFUSED
from .work import Work

SCRIPT = Path(__file__).parent / "side_outputs.py"


@pytest.fixture
def bank(work: Work) -> Work:
    work.script = SCRIPT
    return work


def files(seed: int, number: int = 3) -> list[list[Input]]:
    """Files of deposits and withdrawals in event-time order; withdrawals are often too high."""
    chance = random.Random(seed)
    clock = iter(range(1000, 10_000_000, 1000))
    return [[row(f"account-{chance.randrange(6)}", next(clock), chance.randint(-80, 60)) for _ in range(40)] for _ in range(number)]


def booked(inputs: list[list[Input]]) -> tuple[list[tuple[str, int]], list[list[tuple[str, int]]], dict[str, int]]:
    """What is booked, what is refused of each file, and the final totals, with plain dicts."""
    totals: dict[str, int] = defaultdict(int)
    accepted: list[tuple[str, int]] = []
    refused = [[(each["account"], each["amount"]) for each in rows if not _book(totals, each, accepted)] for rows in inputs]
    return accepted, refused, {account: total for account, total in totals.items() if total}


def _book(totals: dict[str, int], each: Input, accepted: list[tuple[str, int]]) -> bool:
    total = totals[each["account"]] + each["amount"]
    if total < 0:
        return False
    totals[each["account"]] = total
    accepted.append((each["account"], total))
    return True


def written(work: Work, output: str) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of an output by batch; batches without rows are left out."""
    found = {}
    for folder in (work.folder / "out" / output).glob("batch=*"):
        frame = pd.concat([pd.read_parquet(path) for path in folder.glob("*.parquet")])
        if len(frame):
            found[int(folder.name.partition("=")[2])] = sorted(frame.itertuples(index=False, name=None))
    return dict(sorted(found.items()))


def all_rows(work: Work, output: str) -> list[tuple[Any, ...]]:
    return sorted(each for rows in written(work, output).values() for each in rows)


def test_each_output_has_its_rows_its_transformation_and_its_sink(bank: Work) -> None:
    """Three schemas, one with timestamps and one whose name is no Python name; rows come from elements and from timers."""
    bank.entrypoint = "three_outputs"
    bank.parameters = {"calls": str(bank.folder / "calls")}
    inputs = files(seed=1)
    for rows in inputs:
        bank.write(rows)
    status = bank.run()
    accepted, refused, _ = booked(inputs)
    assert all_rows(bank, "main") == sorted(accepted)
    found = [[(account, amount) for account, amount, _ in rows] for rows in written(bank, "refused").values()]
    summed = [pd.DataFrame(rows, columns=["account", "amount"]).groupby("account")["amount"].sum() for rows in refused]
    assert found == [sorted(each.items()) for each in summed], "the batch transformation sees one batch at a time"
    times = {pd.Timestamp(at).value // 1_000_000 for rows in written(bank, "refused").values() for _, _, at in rows}
    assert times <= {START_MS + number * 1000 for number in range(1, 121)}
    idle = all_rows(bank, "idle")
    ends = START_MS + 120_000
    assert idle == sorted((each["account"], at + 10_000) for rows in inputs for each in rows if (at := ms(each)) + 10_000 <= ends)
    assert status.input_rows == 120
    assert (bank.folder / "calls").read_text() == "." * 120, "three sinks, and each row is processed once"


def ms(each: Input) -> int:
    return int(pd.Timestamp(each["at"]).value // 1_000_000)


def test_an_output_that_fails_gets_its_batch_again_and_the_one_before_it_keeps_it_once(bank: Work) -> None:
    """Batch 1 is in the main output when the second one raises. It runs again with its number: nothing is lost or doubled."""
    bank.entrypoint = "dies_between"
    bank.spec = {"restartStrategy": {"type": "fixed-delay", "fixedDelay": {"attempts": 3, "delay": "100ms"}}}
    inputs = files(seed=2)
    for rows in inputs:
        bank.write(rows)
    bank.run()
    accepted, refused, totals = booked(inputs)
    assert (bank.folder / "out" / "failed").exists(), "the failure has happened"
    assert all_rows(bank, "main") == sorted(accepted)
    assert sorted((account, amount) for account, _, amount in all_rows(bank, "refused")) == sorted(
        each for rows in refused for each in rows
    )
    assert {account: total for account, total in bank.state("book", "total") if total} == totals


@pytest.mark.exhaustive
def test_the_error_of_an_output_names_it(bank: Work) -> None:
    """The driver tells which of the functions has raised."""
    bank.entrypoint = "dies_between"
    bank.spec = {"restartStrategy": {"type": "none"}}
    for rows in files(seed=2):
        bank.write(rows)
    error = bank.run_to_failure()
    assert error.message.startswith("the function of the output 'refused' raised RuntimeError: the disk of this sink is full"), error


@pytest.mark.exhaustive
def test_discarded_outputs_and_one_that_reads_a_single_row_cost_no_second_run(bank: Work) -> None:
    """The state has every row, and no batch had to run again without its sink."""
    bank.entrypoint = "discarding"
    inputs = files(seed=3)
    for rows in inputs:
        bank.write(rows)
    job = bank.start(until_idle=True)
    queries: set[str] = set()
    while not job.wait(0.05).final:
        query = job._engine.query
        if query is not None:
            queries.add(str(query.runId))
    assert len(queries) == 1, "a dry run restarts the query"
    assert {account: total for account, total in bank.state("book", "total") if total} == booked(inputs)[2]


@pytest.mark.parametrize(
    ("entrypoint", "says"),
    [
        ("unwritten", "outputs: nothing consumes the outputs 'main', 'refused' of the step 'book'. Return job.outputs("),
        ("keyed_again", "key_by: the step 'book' has side outputs, and Spark would run it once for each step that reads one of them."),
        ("same_name", "side_outputs: the step 'book' has two tags with different schemas named 'refused'. Declare each output once"),
    ],
)
def test_a_pipeline_whose_outputs_do_not_fit_is_refused_before_it_starts(bank: Work, entrypoint: str, says: str) -> None:
    bank.entrypoint = entrypoint
    with pytest.raises(InvalidInputError) as refused:
        bank.start()
    assert str(refused.value).startswith(says)
    assert not (bank.folder / "storage" / "job").exists(), "nothing was touched"


def test_ddl_text_means_to_the_harness_what_it_means_to_spark(bank: Work) -> None:
    """The harness reads it without Java, in the same types and with the same nullability."""
    nested = (
        "a TINYINT, b byte, c SMALLINT NOT NULL, d short, e int, f integer, g BIGINT, h long, i FLOAT, j real, k DOUBLE, l decimal, "
        "m DECIMAL(20), n decimal(20, 3), o date, p timestamp, q timestamp_ntz, r binary, s boolean, `t ``u` string, "
        "v array<map<string, array<int>>>, w struct<x: int not null, `y z` struct<q: date>> NOT NULL"
    )
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        for text in (INPUT, nested, str(REFUSED.schema), str(IDLE.schema)):
            read = StructType.fromDDL(text)
            assert isinstance(read, StructType)
            expected = to_arrow_schema(read, timezone="UTC")
            assert arrow_schema(text).equals(expected), text
            assert arrow_schema(read).equals(expected), text
    finally:
        SparkSession.builder.getOrCreate().stop()
