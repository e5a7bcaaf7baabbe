"""Several files at once: results in order, at most so many at a time, and no further file after an error."""

from __future__ import annotations

import threading

import pytest

from statefulspark.checkpoint.transfers import in_parallel
from statefulspark.errors import CorruptDataError


def test_results_are_in_order_and_calls_are_bounded() -> None:
    """As many at once as there are threads, never more."""
    together = threading.Barrier(4)
    running, most, lock = 0, 0, threading.Lock()

    def act(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(60)  # broken if four do not run at once
        with lock:
            running -= 1
        return item * item

    assert in_parallel(act, range(12), 4) == [item * item for item in range(12)]
    assert most == 4


def test_after_an_error_no_further_item_is_begun() -> None:
    begun: list[int] = []

    def act(item: int) -> None:
        begun.append(item)
        if item == 2:
            raise CorruptDataError("damaged", path=f"file-{item}")

    with pytest.raises(CorruptDataError, match="file-2"):
        in_parallel(act, range(9), 1)
    assert begun == [0, 1, 2]


def test_what_has_begun_ends_before_the_error_is_raised() -> None:
    """A download that goes on would write into a folder that the caller deletes. Of two errors the first item's is raised."""
    both = threading.Barrier(2)
    ended: list[int] = []

    def act(item: int) -> None:
        both.wait(60)
        if item == 0:
            assert second_ended.wait(60)
        ended.append(item)
        second_ended.set()
        raise CorruptDataError("damaged", path=f"file-{item}")

    second_ended = threading.Event()
    with pytest.raises(CorruptDataError, match="file-0"):
        in_parallel(act, range(6), 2)
    assert ended == [1, 0]
