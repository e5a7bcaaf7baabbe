"""Failures in a row are counted until a batch is committed, and what is said of them is short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.errors import UnavailableError, UserFunctionError
from statefulspark.job.failures.failing_batches import MESSAGE_MAX, FailingBatches, brief
from statefulspark.process.runner.failures import user_function_error


@given(steps=st.lists(st.sampled_from(["fail", "commit", "idle", "wait"])))
def test_failures_count_since_the_last_committed_batch(steps: list[str]) -> None:
    """Whatever the order: as many as came since the last commit or rest, since the first of them."""
    committed, clock = -1, 0
    failing = FailingBatches(lambda: committed, now_ms=lambda: clock)
    expected: list[int] = []
    for step in steps:
        clock += 1
        if step == "fail":
            expected.append(clock)
            failing.failed(UnavailableError(f"at {clock}"))
        elif step == "commit":
            committed += 1
            expected = []
        elif step == "idle":
            failing.idle()
            expected = []
        present = failing.present()
        assert (present is None) is not bool(expected)
        if present is not None:
            assert (present.failures, present.since_ms) == (len(expected), expected[0])
            assert present.error.message == f"at {expected[-1]}"


def test_only_the_type_and_the_first_sentence_of_an_error_are_told() -> None:
    """A traceback quotes code and may be long."""
    error = brief(UserFunctionError("process_element raised ValueError", uid="u", key_group=3, user_traceback="Traceback\n  secret = 1"))
    assert (error.reason, error.message) == ("UserFunction", "process_element raised ValueError in uid 'u', key group 3")
    assert len(brief(UnavailableError("x" * 10_000)).message) == MESSAGE_MAX
    assert brief(UnavailableError("")).message


def test_the_message_of_the_user_s_exception_is_told() -> None:
    """It was written to be read; frames and what an exception of several lines goes on to say are not told."""

    def told(message: str) -> str:
        try:
            raise ValueError(message)
        except ValueError as error:
            return brief(user_function_error(error, uid="u", key_group=3)).message

    assert told("told to fail") == "the function raised ValueError in uid 'u', key group 3: told to fail"
    assert told("first: line\nsecond") == "the function raised ValueError in uid 'u', key group 3: first: line"
    assert told("") == "the function raised ValueError in uid 'u', key group 3"
    assert told("first\n  indented") == "the function raised ValueError in uid 'u', key group 3: first"
    assert told("  indented\n  lines") == "the function raised ValueError in uid 'u', key group 3: indented"
    assert told("\n\n  late\n") == "the function raised ValueError in uid 'u', key group 3: late"
    assert len(told("x" * 10_000)) == MESSAGE_MAX


def test_of_chained_exceptions_the_last_one_is_told() -> None:
    """It is the one that left the function. A note is not part of its message, and a syntax error has indented lines of its own."""

    def chained() -> None:
        try:
            raise KeyError("inner")
        except KeyError as cause:
            error = RuntimeError("outer\n  more: detail")
            error.add_note("note: left out")
            raise error from cause

    def told(raised: BaseException) -> str:
        return brief(user_function_error(raised, uid="u", key_group=3)).message

    with pytest.raises(RuntimeError) as found:
        chained()
    assert told(found.value).endswith("key group 3: outer")
    with pytest.raises(SyntaxError) as refused:
        compile("a b", "<rule>", "exec")
    assert told(refused.value).endswith("key group 3: invalid syntax")
