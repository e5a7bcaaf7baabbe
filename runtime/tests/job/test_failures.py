"""What the user sees of a failed query."""

from __future__ import annotations

from statefulspark.errors import InternalError, InvalidInputError, UserFunctionError
from statefulspark.job.failures import query_error

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
