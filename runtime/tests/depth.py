"""How deep tests go: hypothesis profiles, and what `make test` leaves to `make test-all` of a test that takes long.

`make test` has the same seeds and examples in every run, so it guards what was right once; `make test-all` and the nightly run look for more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")


def load_profile() -> None:
    """Take the profile that ``HYPOTHESIS_PROFILE`` names: ``dev``, ``ci`` (`make test`), ``all`` (`make test-all`) or ``thorough``."""
    # No deadline: the machine is shared, and a slow example is no defect.
    settings.register_profile("dev", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
    settings.register_profile("all", parent=settings.get_profile("dev"), max_examples=150)
    settings.register_profile("thorough", parent=settings.get_profile("dev"), max_examples=2000)
    settings.load_profile(_PROFILE)


def examples(few: int, many: int) -> int:
    """How many examples of a property take long enough to count: ``few`` in `make test`, ``many`` in `make test-all` and at night."""
    return many if _PROFILE in {"all", "thorough"} else few


def left_to_test_all(cases: Iterable[Any]) -> list[ParameterSet]:
    """Parameters that `make test` leaves out; a tuple is a set of several parameters, as in ``parametrize``."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.exhaustive) for case in cases]
