"""What a pipeline prints and logs is seen once, however often it is built."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from statefulspark.pipeline.first_build import printing_once


def test_only_the_first_build_is_heard(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """Other threads of the driver print and log all the time, such as a foreachBatch function; the result is that of each build."""
    caplog.set_level(logging.INFO)

    def beside(job: int) -> None:
        print("beside", job)  # noqa: T201  what is tested
        logging.getLogger("shop").warning("beside %s", job)

    def pipeline(job: int) -> int:
        print("rows", job)  # noqa: T201  what is tested
        logging.getLogger("shop").warning("built %s", job)
        logging.getLogger("statefulspark.pipeline").warning("ours %s", job)
        thread = threading.Thread(target=beside, args=(job,))
        thread.start()
        thread.join()
        return job

    build = printing_once(pipeline)
    assert [build(1), build(2)] == [1, 2]
    assert [record.getMessage() for record in caplog.records] == ["built 1", "ours 1", "beside 1", "ours 2", "beside 2"]
    assert capsys.readouterr().out == "rows 1\nbeside 1\nbeside 2\n"
    print("after")  # noqa: T201  what is tested
    assert capsys.readouterr().out == "after\n"


def test_a_build_that_fails_later_is_heard_again_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output and the handlers come back."""

    def pipeline(job: Any) -> None:
        if job:
            raise ValueError("no")

    build = printing_once(pipeline)
    build(None)
    filters = [list(handler.filters) for handler in logging.getLogger().handlers]
    with pytest.raises(ValueError, match="no"):
        build(1)
    assert [list(handler.filters) for handler in logging.getLogger().handlers] == filters
    print("here")  # noqa: T201  what is tested
    assert capsys.readouterr().out == "here\n"
