"""`statefulspark.local` on a session of the user's: what cells see, and what is left when a job ends in any way."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from runtime.tests.small_session import small_session

import statefulspark
from statefulspark import KeyedProcessFunction, OutputTag, Types, ValueStateDescriptor
from statefulspark.errors import ClosedError, ConflictError, InvalidInputError, UserFunctionError

ODD = OutputTag("odd", "user STRING")
NOTEBOOK = Path(__file__).parents[3] / "examples/13-notebook/clicks.ipynb"
Write = Callable[..., None]


class Count(KeyedProcessFunction):
    """Counts the rows of a user; a user ``bad`` is an error, and ``interrupt`` interrupts the notebook and hangs."""

    def __init__(self, step: int = 1, sent: Path = Path()) -> None:
        self.step = step
        self.sent = sent
        self.notebook = os.getpid()

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value.user == "bad":
            raise ValueError("no such user")
        if value.user == "interrupt":
            if not self.sent.exists():
                self.sent.touch()
                os.kill(self.notebook, signal.SIGINT)
            time.sleep(600)
        self.count.update((self.count.value() or 0) + self.step)
        if self.count.value() % 2:
            yield ODD, (value.user,)
        yield value.user, self.count.value()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """As a notebook has it: no setting of the protocol is set."""
    with small_session("local[4]", {"spark.sql.adaptive.enabled": "true"}) as session:
        yield session


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The system's folder for temporary files; it is empty again at the end, and Spark runs nothing."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "in").mkdir()
    return spark.readStream.schema("user STRING").json(str(tmp_path / "in"))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, *users: str) -> None:
        (tmp_path / name).write_text("".join(json.dumps({"user": user}) + "\n" for user in users))
        (tmp_path / name).rename(tmp_path / "in" / f"{name}.json")

    return write


def counts_of(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows.itertuples(index=False, name=None))


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; returns what its last line shows."""
    body = ast.parse(source).body
    last = body[-1]
    if not isinstance(last, ast.Expr):
        exec(source, names)
        return None
    exec(compile(ast.Module(body[:-1], []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def assert_free(spark: SparkSession) -> None:
    """No query and no slot runs, and the session works."""
    assert spark.streams.active == []
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    assert spark.range(3).count() == 3


def test_cells_start_look_change_and_start_again(spark: SparkSession, temporary: Path, clicks: DataFrame, write: Write) -> None:
    """Output, side output and state so far; a second start has the changed function and empty state; the session is as before."""
    settings = dict(spark.conf.getAll)
    write("a", "ada", "bob", "ada")
    job = statefulspark.local(spark, name="cells")
    schema = "user STRING, count BIGINT"

    def counts(step: int) -> Any:
        return job.key_by(clicks, "user").process(Count(step), schema, uid="counts", side_outputs=[ODD])

    unused = job.key_by(clicks, "user").process(Count(), schema, uid="unused", side_outputs=[ODD])
    running = job.start(counts(1))
    assert dict(spark.conf.getAll) == settings
    with pytest.raises(ConflictError, match="running already"):
        job.start(unused)
    other = statefulspark.local(spark, name="other")
    with pytest.raises(InvalidInputError, match="taken by 'cells'"):
        other.start(other.key_by(clicks, "user").filter(lambda _: True, uid="all"))
    with pytest.raises(InvalidInputError, match="no keyed step"):
        other.start(clicks)
    running.process_all_available()
    assert counts_of(running.output()) == [("ada", 1), ("ada", 2), ("bob", 1)]
    write("b", "ada")
    running.process_all_available()
    assert counts_of(running.output()) == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1)]
    assert counts_of(running.output("odd")) == [("ada",), ("ada",), ("bob",)]
    state = running.state("counts", "count")
    assert sorted(zip(state["user"], state["value"], strict=True)) == [("ada", 3), ("bob", 1)]
    with pytest.raises(InvalidInputError, match="count"):
        running.state("counts", "nonsense")
    running.stop()
    running.stop()
    assert list(temporary.iterdir()) == []
    assert_free(spark)
    assert len(running.output()) == 4
    with pytest.raises(ClosedError, match="has been stopped"):
        running.state("counts", "count")
    with job.start(counts(10)) as again:
        again.process_all_available()
        assert counts_of(again.output()) == [("ada", 10), ("ada", 20), ("ada", 30), ("bob", 10)]
    assert_free(spark)


def test_a_function_that_raises(spark: SparkSession, temporary: Path, clicks: DataFrame, write: Write, tmp_path: Path) -> None:
    """The error is the function's own, short and alone; rows of earlier batches stay, also in a sink of the user's; all else is gone."""
    job = statefulspark.local(spark, name="raising", parallelism=1, backend="memory")
    counts = job.key_by(clicks.where("user <> 'x'"), "user").process(Count(), "user STRING, count BIGINT", uid="counts", side_outputs=[ODD])
    rows: list[Any] = []
    writer = job.outputs(counts, main=lambda df, _: rows.extend(df.collect()), odd=None)
    write("a", "ada")
    running = job.start(writer)
    running.process_all_available()
    assert [tuple(row) for row in rows] == [("ada", 1)]
    with pytest.raises(InvalidInputError, match="sink of its own"):
        running.output()
    write("b", "bad")
    with pytest.raises(UserFunctionError) as raised:
        running.process_all_available()
    text = str(raised.value)
    assert "ValueError: no such user" in text
    assert "process_element" in text
    assert len(text.splitlines()) <= 10, text
    assert raised.value.__cause__ is None
    assert not running.is_active
    assert list(temporary.iterdir()) == []
    assert_free(spark)
    (tmp_path / "in" / "b.json").unlink()
    with job.start(writer) as again:
        again.process_all_available()
    assert [tuple(row) for row in rows] == [("ada", 1), ("ada", 1)]


def test_an_interrupt_leaves_nothing(spark: SparkSession, temporary: Path, clicks: DataFrame, write: Write, tmp_path: Path) -> None:
    """The function sends it in the middle of a batch, and does not return by itself."""
    job = statefulspark.local(spark, name="interrupted", parallelism=1, backend="memory")
    function = Count(sent=tmp_path / "sent")
    counts = job.key_by(clicks, "user").process(function, "user STRING, count BIGINT", uid="counts", side_outputs=[ODD])
    write("a", "interrupt")
    running = job.start(counts)
    with pytest.raises(KeyboardInterrupt):
        running.process_all_available()
    assert not running.is_active
    assert list(temporary.iterdir()) == []
    assert_free(spark)


def test_the_notebook_runs(spark: SparkSession, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells one after the other, as ``__main__``, whose classes no slot can import."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # the notebook sets it if it is not set
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        shown = run_cell("".join(cell["source"]), main.__dict__)
        if cell["id"] == "more":
            assert counts_of(shown) == [("ada", 1), ("ada", 2), ("ada", 3), ("bob", 1), ("eve", 1)]
        if cell["id"] == "state":
            assert sorted(zip(shown["user"], shown["value"], strict=True)) == [("ada", 3), ("bob", 1), ("eve", 1)]
    for path in temporary.glob("clicks-*/*"):
        path.unlink()
    for path in temporary.glob("clicks-*"):
        path.rmdir()


@pytest.mark.exhaustive
def test_the_interpreter_s_exit_ends_the_job(tmp_path: Path) -> None:
    """A script that forgets to stop its job."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "script.py").write_text(
        "from pyspark.sql import SparkSession\n"
        "import statefulspark\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "rows = spark.readStream.format('rate').load()\n"
        "job = statefulspark.local(spark)\n"
        "running = job.start(job.key_by(rows, 'value').filter(lambda row: True, uid='all'))\n"
        "print('started', running.parallelism, flush=True)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["started", "1"]), done.stderr[-3000:]
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith(("statefulspark", "ssp"))] == []
    left = [each for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(tmp_path)]
    assert psutil.wait_procs(left, timeout=60)[1] == []  # Spark's Python processes end when its JVM has


def test_workers_of_another_python_are_told_at_once(tmp_path: Path) -> None:
    """As in a kernel whose Python is not the first on the PATH: the workers' has no statefulspark. Nothing is left."""
    (tmp_path / "tmp").mkdir()
    other = tmp_path / "python"
    # Without site-packages, and with nothing but Spark's archives from PYTHONPATH.
    other.write_text(
        f"""#!/bin/sh
PYTHONPATH=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep 'zip$' | paste -sd:) exec {sys.executable} -S "$@"
"""
    )
    other.chmod(0o755)
    (tmp_path / "script.py").write_text(
        "from pyspark.sql import SparkSession\n"
        "import statefulspark\n"
        "from statefulspark.errors import InvalidInputError\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "try:\n"
        "    statefulspark.local(spark)\n"
        "except InvalidInputError as error:\n"
        "    print(error.field, error.message, error.remedy, sep='|')\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYSPARK_PYTHON": str(other)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    field, message, remedy = done.stdout.strip().split("|")
    assert (done.returncode, field) == (0, "PYSPARK_PYTHON"), done.stderr[-3000:]
    assert message == "Spark's Python workers cannot run slots: ModuleNotFoundError: No module named 'statefulspark'"
    assert sys.executable in remedy
    assert "ERROR" not in done.stderr
    assert [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith(("statefulspark", "ssp"))] == []
