"""Examples are scripts, not packages: tests load them by their path."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
Load = Callable[[str], ModuleType]


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def load() -> Load:
    """Load ``01-flights/oracle.py`` and the like; the same path gives the same module."""
    loaded: dict[str, ModuleType] = {}

    def load_once(path: str) -> ModuleType:
        if path not in loaded:
            name = "examples_" + path.removesuffix(".py").replace("/", "_").replace("-", "_")
            spec = spec_from_file_location(name, EXAMPLES / path)
            assert spec is not None
            assert spec.loader is not None
            loaded[path] = sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(loaded[path])
        return loaded[path]

    return load_once
