"""Tests beside examples import what they test by its name, as pytest's default mode lets them. This repository uses another mode."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest


class BesideExample(pytest.Module):
    """A test module that is imported while its folder comes first on the path: ``bench`` has modules of the same names."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Import the module and return its tests."""
        folder = str(self.path.parent)
        sys.path.insert(0, folder)
        try:
            return list(super().collect())
        finally:
            sys.path.remove(folder)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    """Collect the tests of a file beside an example."""
    return BesideExample.from_parent(parent, path=module_path)
