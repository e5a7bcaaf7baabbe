"""Loads the user's pipeline function from the manifest's script or module."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pyspark.cloudpickle

from statefulspark.config.job import JobSpec, StatefulSparkJob
from statefulspark.config.problems import Problem, sentences
from statefulspark.errors import InvalidInputError

Pipeline = Callable[[Any], Any]
"""``pipeline(job)`` returns a DataStreamWriter that has not been started."""

_PACKAGE = Path(__file__).resolve().parents[1]
_NOT_THE_JOBS = (
    *(f"{_PACKAGE / part}{os.sep}" for part in ("job", "pipeline")),
    "<frozen importlib",
    str(Path(importlib.__file__).resolve().parent),
)
"""Path prefixes of the files that call or import the job's code."""


def load_pipeline(manifest: StatefulSparkJob) -> Pipeline:
    """Import the user's code.

    Its module is pickled by value, so slots and executors need not be able to import it.

    Raises:
        InvalidInputError: the script or module cannot be imported or has no such function, or a file beside it is missing.
    """
    spec = manifest.spec.job
    if missing := tuple(missing_files(spec)):
        raise sentences(missing)
    for path in python_path(manifest):
        if path not in sys.path:
            sys.path.insert(0, path)
    module = _imported(spec)
    register_by_value(manifest, module)
    pipeline = getattr(module, spec.entrypoint, None)
    if not callable(pipeline):
        name = Path(spec.script).name if spec.script is not None else spec.module  # a script's module has a name of ours
        raise InvalidInputError(
            f"{name} has no function {spec.entrypoint!r}",
            field="spec.job.entrypoint",
            remedy=f"Define `def {spec.entrypoint}(job)` that returns a DataStreamWriter, or name the right function",
        )
    return pipeline  # type: ignore[no-any-return]  # the user's code has no types


def missing_files(spec: JobSpec) -> Iterator[Problem]:
    """Yield the files of the program that do not exist."""
    remedy = "Correct the path; it is relative to the manifest"
    if spec.script is not None and not Path(spec.script).is_file():
        yield Problem("spec.job.script", f"{spec.script} does not exist", remedy)
    for index, path in enumerate(spec.py_files):
        if not Path(path).exists():
            yield Problem(f"spec.job.pyFiles[{index}]", f"{path} does not exist", remedy)


def python_path(manifest: StatefulSparkJob) -> list[str]:
    """Path of the job's own modules: the script's folder and ``pyFiles``. Slots and exchanges use it too."""
    spec = manifest.spec.job
    beside = [str(Path(spec.script).parent)] if spec.script is not None else []
    return [*beside, *spec.py_files]


def register_by_value(manifest: StatefulSparkJob, *modules: ModuleType) -> None:
    """Pickle the job's own modules by value: ``modules``, and all that were imported from its folders."""
    folders = tuple(f"{Path(path).resolve()}{os.sep}" for path in python_path(manifest) if Path(path).is_dir())
    installed = tuple(f"{Path(path).resolve()}{os.sep}" for path in (sys.prefix, sys.base_prefix))
    found = set(modules)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and str(Path(file).resolve()).startswith(folders) and not str(Path(file).resolve()).startswith(installed) and folders:
            found.add(module)
    for module in found:
        for pickler in (cloudpickle, pyspark.cloudpickle):
            pickler.register_pickle_by_value(module)


def trace_in_user_code(error: BaseException) -> str:
    """The traceback of an error in the job's own code, beginning there."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_NOT_THE_JOBS):
        trace = trace.tb_next
    return "".join(traceback.format_exception(error.with_traceback(trace))).strip()


def _imported(spec: JobSpec) -> ModuleType:
    """Run the job's module, whose errors are its author's: tried again, it would raise them again."""
    try:
        return _from_script(Path(spec.script)) if spec.script is not None else _from_module(str(spec.module))
    except InvalidInputError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInputError(
            f"importing the program raised {type(error).__name__}\n{trace_in_user_code(error)}\n",
            field="spec.job.script" if spec.script is not None else "spec.job.module",
            remedy="Correct the program; nothing was started",
        ) from error


def _from_script(path: Path) -> ModuleType:
    name = f"statefulspark_script_{path.stem.replace('-', '_')}"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise InvalidInputError(f"{path} is not a Python file", field="spec.job.script", remedy="Name a .py file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"cannot import {error.name!r}", field="spec.job.module", remedy="Install it or add it to pyFiles"
        ) from error
