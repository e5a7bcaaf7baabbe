"""Checks a manifest as far as that is possible without starting Spark and without touching storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.kubernetes.manifest import kubernetes_problems
from statefulspark.config.manifest import manifest_problems, read_manifest
from statefulspark.config.problems import Problem, problem_of
from statefulspark.errors import InvalidInputError
from statefulspark.job.metrics.native import check_native_metrics
from statefulspark.job.spark.session import FIXED_SETTINGS, changed_settings, check_spark_version
from statefulspark.job.start.options_factory import checked_choice
from statefulspark.job.start.own_backend import own_backend_options
from statefulspark.job.start.planning import build_plan
from statefulspark.pipeline.script import load_pipeline, missing_files
from statefulspark.pipeline.static_checks import script_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What is known of a manifest."""

    job: StatefulSparkJob | None
    """None if the manifest is not a valid job."""
    problems: tuple[Problem, ...]
    """Everything that is wrong; empty if the job can be started as far as its manifest shows."""
    warnings: tuple[str, ...] = ()
    """What works badly."""


def validate_manifest(
    path: Path, *, default_backend: str, kubernetes: bool = False, run_script: bool = False, plan: bool = False
) -> Validation:
    """Check a manifest file; starts nothing.

    Rules across fields are checked once each field of a section is right by itself, and files and settings once the whole manifest is.

    Args:
        path: The manifest.
        default_backend: ``stateBackend.type`` of a manifest without one.
        kubernetes: Check it for the operator instead of for ``statefulspark run``. Absolute paths are those of the image: they are not checked.
        run_script: Import the program, and the classes that the manifest names. This runs the user's code.
        plan: Build the pipeline in an embedded Spark too, unless something else is wrong.

    Raises:
        InvalidInputError: The file cannot be read.
    """
    found = manifest_problems(read_manifest(path), folder=path.resolve().parent, default_backend=default_backend)
    if not isinstance(found, StatefulSparkJob):
        return Validation(job=None, problems=found)
    problems = [*_spark_problems(found, kubernetes=kubernetes), *_backend_problems(found, run_script=run_script)]
    problems += kubernetes_problems(found) if kubernetes else _local_problems(found)
    if not kubernetes or _is_here(found, path.resolve().parent):
        problems += _program_problems(found, run_script=run_script)
    if plan and not problems:
        problems += _raised(lambda: build_plan(found))
    return Validation(job=found, problems=tuple(problems), warnings=tuple(found.spec.memory_plan().warnings))


def _spark_problems(job: StatefulSparkJob, *, kubernetes: bool) -> Iterator[Problem]:
    yield from changed_settings(job.spec.spark_conf, FIXED_SETTINGS)
    if not kubernetes:  # there, the image has its own Spark
        yield from _raised(lambda: check_spark_version(job))


def _backend_problems(job: StatefulSparkJob, *, run_script: bool) -> Iterator[Problem]:
    """Problems of the state backend; an options factory of the job's own is code that only ``run_script`` runs."""
    yield from _raised(lambda: check_native_metrics(job))
    if job.spec.state_backend.rocksdb.options_factory is None and not run_script:
        yield from _raised(lambda: checked_choice(job))


def _local_problems(job: StatefulSparkJob) -> Iterator[Problem]:
    bundle = job.spec.checkpointing.storage.ca_bundle
    if bundle is not None and not Path(bundle).is_file():
        yield Problem("spec.checkpointing.storage.caBundle", f"{bundle} does not exist", "Correct the path; it is relative to the manifest")
    if job.spec.initial_snapshot is not None:
        yield Problem(
            "spec.initialSnapshot",
            "refers to a Kubernetes object, which cannot be read outside the operator",
            "Set initialSavepointPath to the path from its status, or validate with --kubernetes",
        )


def _is_here(job: StatefulSparkJob, folder: Path) -> bool:
    """True if the files of the program lie beside the manifest, so that they become those of the image."""
    given = [path for path in (job.spec.job.script, *job.spec.job.py_files) if path is not None]
    return all(Path(path).is_relative_to(folder) for path in given)


def _program_problems(job: StatefulSparkJob, *, run_script: bool) -> Iterator[Problem]:
    missing = tuple(missing_files(job.spec.job))
    yield from missing
    if any(problem.field == "spec.job.script" for problem in missing):
        return
    static = tuple(script_problems(job.spec.job))
    yield from static
    if run_script and not missing and not static:
        failed = tuple(_raised(lambda: load_pipeline(job)))
        yield from failed
        if not failed:
            yield from _raised(lambda: checked_choice(job))
            yield from _raised(lambda: own_backend_options(job))


def _raised(check: Callable[[], object]) -> Iterator[Problem]:
    try:
        check()
    except InvalidInputError as error:
        yield problem_of(error)
