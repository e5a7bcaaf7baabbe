"""What a keyed step takes as arguments, as far as no Spark is needed to tell."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from statefulspark.errors import InvalidInputError
from statefulspark.pipeline.column_names import quoted
from statefulspark.pipeline.step_arguments import watermark_delay_ms


@pytest.mark.parametrize(("given", "delay_ms"), [("1 hour", 3_600_000), ("0s", 0), (250, 250), (0, 0)])
def test_a_watermark_is_a_duration_or_milliseconds(given: str | int, delay_ms: int) -> None:
    """Both forms mean milliseconds."""
    assert watermark_delay_ms(given) == delay_ms


@pytest.mark.parametrize("given", ["5 parsecs", "", "-1s", -1, None, True, 1.5, timedelta(hours=1)])
def test_what_is_no_watermark_is_refused_by_its_name(given: Any) -> None:
    """The text begins with the argument that is wrong, also where the reader of durations does not know it."""
    with pytest.raises(InvalidInputError, match=r"^watermark: .*Give a duration such as '1 hour', or milliseconds$"):
        watermark_delay_ms(given)


@pytest.mark.parametrize(("name", "expected"), [("user", "`user`"), ("a.b c", "`a.b c`"), ("odd`one", "`odd``one`")])
def test_any_column_name_can_be_quoted(name: str, expected: str) -> None:
    """Spark writes a backtick within a quoted name twice."""
    assert quoted(name) == expected
