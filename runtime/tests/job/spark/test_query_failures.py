"""What the user sees of a failed query."""

from __future__ import annotations

from statefulspark.errors import InternalError, InvalidInputError, SlotCrashedError, UnavailableError, UserFunctionError
from statefulspark.job.spark.query_failures import query_error, slot_error, spark_sentence

_SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted: Task 1 failed 4 times: [PYTHON_EXCEPTION] Traceback
  File "/x/pyspark/worker.py", line 4207, in main
statefulspark.errors.UserFunctionError: process_element raised ZeroDivisionError in uid 'counts', key group 17
Traceback (most recent call last):
  File "/home/me/job.py", line 12, in process_element
    1 / 0
ZeroDivisionError: division by zero
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner
"""


def test_a_user_error_keeps_uid_key_group_and_the_users_own_traceback() -> None:
    error = query_error(RuntimeError(_SPARK))
    assert isinstance(error, UserFunctionError)
    assert (error.uid, error.key_group) == ("counts", 17)
    assert error.user_traceback.startswith("Traceback")
    assert error.user_traceback.endswith("ZeroDivisionError: division by zero")
    assert "BasePythonRunner" not in str(error)


def test_a_null_key_is_invalid_input_in_one_line() -> None:
    text = (
        "[USER_RAISED_EXCEPTION] InvalidInputError: key_by: a row of uid 'u' has a null key in k. Filter such rows SQLSTATE: P0001\n\tat x"
    )
    error = query_error(RuntimeError(text))
    assert isinstance(error, InvalidInputError)
    assert str(error) == "key_by: a row of uid 'u' has a null key in k. Filter such rows"


def test_what_is_not_ours_stays_readable() -> None:
    error = query_error(RuntimeError("boom\nsecond line"))
    assert isinstance(error, InternalError)
    assert "boom" in str(error)


_DIVISION = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in stage 5.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 5.0 (TID 20) (host executor driver): org.apache.spark.SparkException: \
[TASK_WRITE_FAILED] Task failed while writing rows to file:/out. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:774)
Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0. SQLSTATE: 22012
== DataFrame ==
"div" was called from
<init> at /home/me/job.py:24

\tat org.apache.spark.sql.errors.QueryExecutionErrors$.divideByZeroError(QueryExecutionErrors.scala:204)
\t... 21 more
"""


def test_spark_own_error_is_its_innermost_sentence() -> None:
    """In one line without Java frames, and no defect of ours."""
    error = query_error(RuntimeError(_DIVISION))
    assert isinstance(error, UnavailableError)
    assert str(error) == (
        "Spark failed the query: Division by zero. Use `try_divide` to tolerate divisor being 0 [DIVIDE_BY_ZERO]. If the pipeline causes this, correct it"
    )
    plain = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST\n\tat x"
    )
    error = query_error(RuntimeError(plain))
    assert isinstance(error, InternalError)
    assert str(error) == "the query failed: Python worker failed to connect back"


_UDF = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 failed: \
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/site-packages/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
  File "/home/me/job.py", line 8, in price
    return 1 / value
ZeroDivisionError: division by zero
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:721)
"""


def test_an_error_of_a_udf_keeps_the_users_own_frames() -> None:
    """Without PySpark's and Java's; one that comes from our own code stays a defect of ours."""
    error = query_error(RuntimeError(_UDF))
    assert isinstance(error, UnavailableError)
    assert str(error).splitlines() == [
        "a Python function that Spark calls for the query raised ZeroDivisionError: division by zero",
        '  File "/home/me/job.py", line 8, in price',
        "    return 1 / value",
    ]
    assert isinstance(query_error(RuntimeError(_UDF.replace("/home/me/job.py", "/x/statefulspark/exchange/task.py"))), InternalError)


def test_a_sentence_of_spark_has_neither_conditions_nor_frames() -> None:
    """As AnalysisException and Py4J write them."""
    analysis = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. Did you mean one of [`n`]? SQLSTATE: 42703;\n'Project ['x]"
    )
    assert spark_sentence(RuntimeError(analysis)) == "A column `x` cannot be resolved. Did you mean one of [`n`]?"
    py4j = "An error occurred while calling o45.foo. Trace:\npy4j.Py4JException: Method foo([class X]) does not exist\n\tat py4j.reflection"
    assert spark_sentence(RuntimeError(py4j)) == "Method foo([class X]) does not exist"


_SINK = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
KeyError: 3

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/me/job.py", line 9, in write
    raise ConnectionError("the warehouse is closed")
ConnectionError: the warehouse is closed

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
Caused by: java.lang.Exception: other
"""


def test_an_error_of_the_sinks_function_is_named_and_no_defect_of_ours() -> None:
    error = query_error(RuntimeError(_SINK))
    assert isinstance(error, UnavailableError)
    assert str(error) == "the function of foreachBatch raised ConnectionError: the warehouse is closed"
    within = _SINK.replace("ConnectionError: the warehouse is closed", "boom\n" + _SPARK)
    assert isinstance(query_error(RuntimeError(within)), UserFunctionError)


_SLOT = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times: PythonException: Traceback
  File "/x/statefulspark/process/runner/function_runner.py", line 257, in _call
ValueError: no such file

The above exception was the direct cause of the following exception:

  File "/x/statefulspark/slot/process.py", line 130, in restored_service
statefulspark.errors.UserFunctionError: the function raised ValueError in uid 'counts'
Traceback (most recent call last):
  File "/home/me/job.py", line 7, in open
    raise ValueError("no such file")
ValueError: no such file

\tat org.apache.spark.api.python.BasePythonRunner
Caused by: org.apache.spark.api.python.PythonException: again
"""


def test_an_error_of_the_users_open_is_his_and_not_a_defect_of_ours() -> None:
    """It comes with the slot, not with the query, and reads the same."""
    error = slot_error(0, RuntimeError(_SLOT))
    assert isinstance(error, UserFunctionError)
    assert (error.uid, error.key_group) == ("counts", None)
    assert error.user_traceback.splitlines()[1:] == [
        '  File "/home/me/job.py", line 7, in open',
        '    raise ValueError("no such file")',
        "ValueError: no such file",
    ]


def test_a_slots_folder_that_cannot_be_made_is_a_wrong_setting() -> None:
    """The field is named, and nothing of Spark's account is left."""
    text = "x\nstatefulspark.errors.InvalidInputError: spec.stateBackend.rocksdb.localDir: /etc/hosts: Not a directory\n\tat org.apache.spark.api"
    error = slot_error(1, RuntimeError(text))
    assert isinstance(error, InvalidInputError)
    assert str(error) == "spec.stateBackend.rocksdb.localDir: /etc/hosts: Not a directory"


def test_a_slot_whose_process_dies_of_a_signal_has_crashed() -> None:
    """As when a hostile file of a checkpoint crashes RocksDB. Spark's account named no slot and no remedy."""
    text = (
        "Job aborted due to stage failure: Lost task 0.3 in stage 3.0: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."
        " Consider setting 'spark.python.worker.faulthandler.enabled'\n\tat x\nCaused by: java.io.EOFException\n\tat y"
    )
    error = slot_error(1, RuntimeError(text))
    assert isinstance(error, SlotCrashedError)
    assert all(part in str(error) for part in ("slot 1 died", "executor's log", "start from an earlier one"))


def test_what_kills_a_slot_otherwise_names_the_slot() -> None:
    """The last line that tells something; also of a slot that a newer one has fenced, which is not the driver's end."""
    for line in ("org.apache.spark.SparkException: worker crashed", "statefulspark.errors.FencedError: epoch 2 took over"):
        error = slot_error(1, RuntimeError(f"Job aborted\n{line}\n\tat x"))
        assert isinstance(error, InternalError)
        assert str(error) == f"slot 1: {line}"
