"""Whatever is put into a manifest, the answer is a job or an InvalidInputError with a sentence: never another exception."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.manifest import parse_manifest, validate_job
from statefulspark.errors import InvalidInputError

FULL: dict[str, Any] = {
    **validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "flights"},
            "spec": {
                "job": {"script": "flights.py", "args": ["a"]},
                "checkpointing": {"dir": "s3://bucket/x", "savepointDir": "s3://bucket/y", "storage": {"endpoint": "http://h:1"}},
                "savepoints": {"schedule": {"cron": "0 3 * * *"}},
                "executor": {"managedMemory": {"size": "64Mi"}, "instances": 3},
                "stateBackend": {"rocksdb": {"metrics": ["block-cache-usage"], "options": {"thread.num": "2"}}},
                "sparkConf": {"spark.ui.enabled": "false"},
            },
        }
    ).to_manifest()
}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.binary(max_size=4)
WORDS = st.sampled_from(
    ["0", "-1", "1e9", "10s", "5Gi", "s3://", "file://", "s3://[", "http://[::1", "* * * * *", "*/0 * * * *", "\x00", "\ud800", "{}", "%"]
)
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values below ``document``."""
    entries = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [deeper for key, value in entries for deeper in ((*path, key), *places(value, (*path, key)))]


PLACES = places(FULL)


@given(
    st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4), st.dictionaries(st.text(max_size=8), VALUES, max_size=1)
)
def test_any_change_is_a_job_or_a_sentence(changes: list[tuple[tuple[Any, ...], Any]], unknown: dict[str, Any]) -> None:
    """Random values at random places; what is accepted survives writing and reading again."""
    document = copy.deepcopy(FULL)
    for path, value in changes:
        owner: Any = document
        for key in path[:-1]:
            owner = owner[key] if isinstance(owner, dict) and key in owner else None
        if isinstance(owner, dict):
            owner[path[-1]] = value
    if isinstance(document["spec"], dict):
        document["spec"] |= unknown
    job = None
    with contextlib.suppress(InvalidInputError):
        job = validate_job(document)
    if job is not None:  # outside of the suppressed part, so that a refusal of our own output is seen
        assert validate_job(job.to_manifest()) == job


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_any_text_is_a_job_or_a_sentence(text: str) -> None:
    """YAML has many corners; none leads to a traceback."""
    with contextlib.suppress(InvalidInputError):
        parse_manifest(text)
