"""The package's public names: pinned, sorted, all importable, and cheap until used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import statefulspark
from statefulspark.public_names import HOME_OF

NEEDS_SPARK = {"Job", "KeyedStream"}


def test_names_are_sorted_and_importable() -> None:
    """Every promised name exists; the list reads in order."""
    assert statefulspark.__all__ == sorted(statefulspark.__all__)
    for name in set(statefulspark.__all__) - NEEDS_SPARK:
        assert getattr(statefulspark, name).__name__ == name
    assert set(statefulspark.__all__) <= set(dir(statefulspark))


def test_every_name_has_a_home_for_type_checkers_too() -> None:
    """A name that is promised but has no home would only fail when somebody uses it."""
    assert set(HOME_OF) == set(statefulspark.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = statefulspark.no_such_name


def test_functions_do_not_need_spark() -> None:
    """A slot, and a user's unit test, start without importing pyspark."""
    code = (
        "import sys; from statefulspark import KeyedProcessFunction, Types, Row; from statefulspark.testing import KeyedProcessHarness, TestingJob; "
        "sys.exit(any(name.split('.')[0] in ('pyspark', 'pandas') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False, timeout=60).returncode == 0


def test_testing_loads_what_is_used() -> None:
    """Not the coordinator for a test of one function, and nothing at all by itself."""
    program = (
        "import sys; import statefulspark.testing as testing; "
        "assert not {'pyarrow', 'numpy', 'pydantic'} & {*sys.modules}; "
        "from statefulspark.testing import KeyedProcessHarness; "
        "assert 'statefulspark.coordinator.coordinator' not in sys.modules; "
        "assert all(getattr(testing, name) is not None for name in testing.__all__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
