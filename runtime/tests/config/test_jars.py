"""Jars of a manifest: one origin each, and nothing that means something else on a class path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statefulspark.config.kubernetes.manifest import validate_on_kubernetes
from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError

SHA256 = "4e388ab32b10dc8dbc7e28144f552830adc74787c1e2c0824032078a79f227fb"


def manifest(*jars: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "statefulspark.io/v1alpha1",
        "kind": "StatefulSparkJob",
        "metadata": {"name": "orders"},
        "spec": {"job": {"script": "orders.py", "jars": list(jars)}, "checkpointing": {"dir": "s3://state/checkpoints"}},
    }


def test_paths_are_beside_the_manifest_or_in_the_image(tmp_path: Path) -> None:
    given = [{"path": "a.jar"}, {"path": "/opt/b.jar"}, {"maven": "org.postgresql:postgresql:42.7.4"}]
    assert [jar.path for jar in validate_job(manifest(*given), folder=tmp_path).spec.job.jars] == [
        str(tmp_path / "a.jar"),
        "/opt/b.jar",
        None,
    ]
    assert [jar.path for jar in validate_on_kubernetes(manifest(*given)).spec.job.jars] == ["/opt/job/a.jar", "/opt/b.jar", None]


@pytest.mark.parametrize(
    ("jar", "says"),
    [
        ({}, r"spec\.job\.jars\[0\]\.path: set exactly one of path, url and maven"),
        ({"path": "a.jar", "maven": "a:b:1"}, "set exactly one of path, url and maven"),
        ({"path": "a.jar", "sha256": SHA256}, "only applies to url and maven"),
        ({"url": "https://repository.example/a.jar"}, r"spec\.job\.jars\[0\]\.sha256: is required with url"),
        ({"url": "http://repository.example/a.jar", "sha256": SHA256}, r"spec\.job\.jars\[0\]\.url"),
        ({"url": "https://me:secret@repository.example/a.jar", "sha256": SHA256}, r"spec\.job\.jars\[0\]\.url"),
        ({"url": "file:///etc/passwd", "sha256": SHA256}, r"spec\.job\.jars\[0\]\.url"),
        ({"path": "/a.jar:/b.jar"}, r"spec\.job\.jars\[0\]\.path"),
        ({"path": "/jars/*"}, r"spec\.job\.jars\[0\]\.path"),
        ({"maven": "a:b"}, r"spec\.job\.jars\[0\]\.maven"),
        ({"maven": "a:../../b:1"}, r"spec\.job\.jars\[0\]\.maven"),
        ({"maven": "a..b:c:1"}, r"spec\.job\.jars\[0\]\.maven"),
        ({"maven": "a:b:1", "sha256": "abc"}, r"spec\.job\.jars\[0\]\.sha256"),
    ],
)
def test_what_is_wrong_is_named_without_what_was_given(jar: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as refused:
        validate_job(manifest(jar), folder=Path("/jobs"))
    assert "secret" not in str(refused.value)
