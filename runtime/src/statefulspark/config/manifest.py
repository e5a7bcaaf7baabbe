"""Reads the YAML of a `StatefulSparkJob`, from a file or from text."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from statefulspark.config.default_backend import with_default_backend
from statefulspark.config.document_bounds import check_bounds
from statefulspark.config.job import KIND, StatefulSparkJob
from statefulspark.config.problems import Problem, did_you_mean, problem_of, problems_of, sentences
from statefulspark.config.state_backend import StateBackendType
from statefulspark.errors import InvalidInputError

_BYTES_MAX = 1 << 20
_MERGE = "tag:yaml.org,2002:merge"
_MERGED_MAX = 10_000
"""Entries that one file copies with ``<<``, and mappings that it names for that."""
"""Kubernetes does not store larger objects either."""


def load_manifest(path: Path | str, *, default_backend: str = StateBackendType.ROCKSDB) -> StatefulSparkJob:
    """Read a manifest file.

    Relative paths in ``job.script``, ``job.pyFiles`` and ``checkpointing.storage.caBundle`` are taken from the file's folder.

    Args:
        path: A YAML file with exactly one `StatefulSparkJob` and any number of other documents; at most 1 MiB.
        default_backend: ``stateBackend.type`` of a manifest without one.

    Raises:
        InvalidInputError: The file cannot be read, is no YAML, or is no valid job; one sentence per problem.
    """
    return parse_manifest(read_manifest(path), folder=Path(path).resolve().parent, default_backend=default_backend)


def read_manifest(path: Path | str) -> str:
    """Read the text of a manifest file.

    Raises:
        InvalidInputError: The file cannot be read, is larger than 1 MiB, or is no text.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInputError(f"cannot be read: {error.strerror}", field=str(path), remedy="Give the path of a manifest") from error
    if len(content) > _BYTES_MAX:
        raise InvalidInputError("is larger than 1Mi", field=str(path), remedy="Give the path of a manifest")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("is not UTF-8 text", field=str(path), remedy="Give the path of a manifest") from error


def parse_manifest(text: str, *, folder: Path | None = None, default_backend: str = StateBackendType.ROCKSDB) -> StatefulSparkJob:
    """Read a manifest from its text.

    Args:
        text: YAML with exactly one `StatefulSparkJob`.
        folder: Where relative paths start; None leaves them as they are.
        default_backend: ``stateBackend.type`` of a manifest without one.

    Raises:
        InvalidInputError: No YAML, or no valid job; one sentence per problem, with the field's path as in YAML.
    """
    return validate_job(with_default_backend(_only_job(_documents(text)), default_backend), folder=folder)


def manifest_problems(
    text: str, *, folder: Path | None = None, default_backend: str = StateBackendType.ROCKSDB
) -> StatefulSparkJob | tuple[Problem, ...]:
    """Read a manifest as `parse_manifest` does, and return the job, or each problem instead of one error."""
    try:
        document = with_default_backend(_only_job(_documents(text)), default_backend)
    except InvalidInputError as error:
        return (problem_of(error),)
    return _checked(document, folder)


def validate_job(document: object, *, folder: Path | None = None) -> StatefulSparkJob:
    """Check a job that is already parsed, for example an object of the Kubernetes API.

    Args:
        document: The mapping with apiVersion, kind, metadata and spec; a status is ignored.
        folder: Where relative paths start; None leaves them as they are.

    Raises:
        InvalidInputError: No valid job; one sentence per problem, with the field's path as in YAML.
    """
    found = _checked(document, folder)
    if not isinstance(found, StatefulSparkJob):
        raise sentences(found)
    return found


def _checked(document: object, folder: Path | None) -> StatefulSparkJob | tuple[Problem, ...]:
    try:
        check_bounds(document)
        job = StatefulSparkJob.model_validate(document, by_alias=True, by_name=False)
    except InvalidInputError as error:
        return (problem_of(error),)
    except ValidationError as error:
        return problems_of(error, StatefulSparkJob)
    return _with_absolute_paths(job, folder) if folder is not None else job


class _Loader(yaml.SafeLoader):
    """Refuses a name that occurs twice in one mapping; plain YAML keeps the last one silently."""

    _merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Bound what ``<<`` copies: it may name mappings that copy others, ten times in each of ten lines."""
        merges = [value for key, value in node.value if key.tag == _MERGE]
        self._merged += sum(len(value.value) for value in merges)
        if self._merged <= _MERGED_MAX:
            before = len(node.value)
            super().flatten_mapping(node)
            self._merged += len(node.value) - before
        if self._merged > _MERGED_MAX:
            raise yaml.constructor.ConstructorError(None, None, f"<< copies more than {_MERGED_MAX} entries", node.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{name} occurs twice in one mapping", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _documents(text: str) -> list[Any]:
    try:
        return [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidInputError(f"not valid YAML{where}: {error.problem}", field="manifest", remedy="Fix the YAML") from None
    except yaml.reader.ReaderError as error:
        raise InvalidInputError(
            f"not valid YAML: character {error.position + 1} is one that YAML does not allow", field="manifest", remedy="Remove it"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A value such as 2020-13-45 looks like a date and is none.
        raise InvalidInputError(
            f"not valid YAML: {error}", field="manifest", remedy="Fix the YAML; quote text that looks like a date"
        ) from None


def _only_job(documents: list[Any]) -> object:
    if not documents:
        raise InvalidInputError("is empty", field="manifest", remedy=f"Write a {KIND}")
    if len(documents) == 1:
        document = documents[0]
        if not isinstance(document, dict):
            raise InvalidInputError("is not a mapping", field="manifest", remedy="Start with apiVersion, kind, metadata and spec")
        for field in ("apiVersion", "kind"):
            if field not in document:
                value = StatefulSparkJob.model_fields["api_version" if field == "apiVersion" else "kind"].default
                raise InvalidInputError("is missing", field=field, remedy=f"Write {field}: {value}")
        return document
    jobs = [each for each in documents if isinstance(each, dict) and each.get("kind") == KIND]
    if len(jobs) != 1:
        kinds = [str(each.get("kind")) for each in documents if isinstance(each, dict)]
        remedy = did_you_mean(kinds[0], [KIND]) if not jobs and len(kinds) == 1 else f"Keep exactly one {KIND} in the file"
        raise InvalidInputError(f"holds {len(jobs)} documents of kind {KIND}", field="manifest", remedy=remedy)
    return jobs[0]


def _with_absolute_paths(job: StatefulSparkJob, folder: Path) -> StatefulSparkJob:
    def absolute(path: str) -> str:
        return path if "://" in path else str(folder / path)

    spec, storage = job.spec, job.spec.checkpointing.storage
    program = spec.job.model_copy(
        update={
            "script": absolute(spec.job.script) if spec.job.script is not None else None,
            "py_files": tuple(absolute(each) for each in spec.job.py_files),
        }
    )
    if spec.job.jars:  # a field that was not set stays so
        jars = (each.model_copy(update={"path": absolute(each.path)}) if each.path is not None else each for each in spec.job.jars)
        program = program.model_copy(update={"jars": tuple(jars)})
    update: dict[str, Any] = {"job": program}
    if storage.ca_bundle is not None:
        reachable = storage.model_copy(update={"ca_bundle": absolute(storage.ca_bundle)})
        update["checkpointing"] = spec.checkpointing.model_copy(update={"storage": reachable})
    return job.model_copy(update={"spec": spec.model_copy(update=update)})
