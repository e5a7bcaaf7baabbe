"""Loads the user's pipeline function from the manifest's script or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pyspark.cloudpickle

from statefulspark.config.job import StatefulSparkJob
from statefulspark.errors import InvalidInputError

Pipeline = Callable[[Any], Any]
"""``pipeline(job)`` returns a DataStreamWriter that has not been started."""


def load_pipeline(manifest: StatefulSparkJob) -> Pipeline:
    """Import the user's code.

    Its module is pickled by value, so slots and executors need not be able to import it.

    Raises:
        InvalidInputError: the script or module cannot be imported or has no such function.
    """
    spec = manifest.spec.job
    for path in spec.py_files:
        if path not in sys.path:
            sys.path.insert(0, path)
    module = _from_script(Path(spec.script)) if spec.script is not None else _from_module(str(spec.module))
    for pickler in (cloudpickle, pyspark.cloudpickle):
        pickler.register_pickle_by_value(module)
    pipeline = getattr(module, spec.entrypoint, None)
    if not callable(pipeline):
        raise InvalidInputError(
            f"{module.__name__} has no function {spec.entrypoint!r}",
            field="spec.job.entrypoint",
            remedy=f"Define `def {spec.entrypoint}(job)` that returns a DataStreamWriter, or name the right function",
        )
    return pipeline  # type: ignore[no-any-return]  # the user's code has no types


def _from_script(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInputError(
            f"{path} does not exist", field="spec.job.script", remedy="Correct the path; it is relative to the manifest"
        )
    name = f"statefulspark_script_{path.stem.replace('-', '_')}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InvalidInputError(f"{path} is not a Python file", field="spec.job.script", remedy="Name a .py file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    found.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"cannot import {error.name!r}", field="spec.job.module", remedy="Install it or add it to pyFiles"
        ) from error
