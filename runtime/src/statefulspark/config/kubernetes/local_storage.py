"""State in a folder of a pod that no other pod sees, which goes with the pod: allowed, since one cannot know every cluster, but warned of. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from statefulspark.config.job import StatefulSparkJobSpec


def storage_warnings(spec: StatefulSparkJobSpec) -> Iterator[str]:
    """Yield a sentence for each folder of the job that is not on a volume of both driver and executors."""
    checkpointing = spec.checkpointing
    for name, url in (("dir", checkpointing.dir), ("savepointDir", checkpointing.savepoint_dir)):
        if url is None or urlsplit(url).scheme != "file":
            continue
        path = PurePosixPath(unquote(urlsplit(url).path))
        missing = [part for part in ("driver", "executor") if not _mounted(getattr(spec, part).pod_template, path)]
        if missing:
            yield (
                f"spec.checkpointing.{name}: a file:// folder in the {' and the '.join(missing)} pods is lost with the pod, and other pods do not"
                f" see it. Mount one volume there that all pods share ({', '.join(f'{part}.podTemplate' for part in missing)}), or use an object store such as s3://"
            )


def _mounted(template: Mapping[str, Any], path: PurePosixPath) -> bool:
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return False
    shared = {each.get("name") for each in _mappings(spec.get("volumes")) if "emptyDir" not in each}
    return any(
        mount.get("name") in shared and path.is_relative_to(PurePosixPath(str(mount.get("mountPath"))))
        for container in _mappings(spec.get("containers"))
        for mount in _mappings(container.get("volumeMounts"))
    )


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
