"""The images of the tests, built from this tree. Docker keeps its layers between runs, and a cluster what it was given."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Final

from e2e.harness.kubectl import Kubectl
from e2e.harness.providers import ROOT, Provider
from e2e.harness.timeouts import COMMAND_S

OUT: Final = ROOT / "out" / "e2e"
SOURCES: Final = ROOT / "e2e" / "images"
_OF_KAFKA: Final = (
    ROOT / "runtime" / "src" / "statefulspark" / "connectors" / "jars.py",
    ROOT / "runtime" / "tests" / "kafka" / "broker.lock",
    ROOT / "examples" / "14-kafka" / "payments.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Names of the images, as the cluster knows them."""

    operator: str
    job: str
    """The counting job, first version."""
    job_next: str
    """The same with other code."""
    store: str


def build_images(provider: Provider) -> Images:
    """Build all images."""
    base = f"BASE_IMAGE={provider.base_image()}"
    names = {name: f"{provider.prefix}statefulspark-{name}:e2e" for name in ("operator", "job", "store")}
    for name in ("operator", "job"):
        provider.build(names[name], ROOT, "--target", name, "--build-arg", base)
    provider.build(names["store"], SOURCES / "store", "--build-arg", base)
    program = (SOURCES / "counts" / "counts.py").read_text()
    jobs = {1: f"{provider.prefix}counts:1", 2: f"{provider.prefix}counts:2"}
    for code, tag in jobs.items():
        context = OUT / "images" / f"counts-{code}"
        context.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCES / "counts" / "Dockerfile", context / "Dockerfile")
        (context / "counts.py").write_text(program.replace("CODE = 1\n", f"CODE = {code}\n"))
        provider.build(tag, context, "--build-arg", f"JOB_IMAGE={names['job']}")
    return Images(operator=names["operator"], job=jobs[1], job_next=jobs[2], store=names["store"])


def make_kafka_image(provider: Provider) -> str:
    """Build and load the image that is both a Kafka broker and the job of examples/14-kafka, on top of the job image that is there."""
    context = OUT / "images" / "kafka"
    context.mkdir(parents=True, exist_ok=True)
    for file in (*(SOURCES / "kafka").iterdir(), *_OF_KAFKA):
        shutil.copy(file, context)
    base, job = f"BASE_IMAGE={provider.base_image()}", f"JOB_IMAGE={provider.prefix}statefulspark-job:e2e"
    tag = f"{provider.prefix}kafka:e2e"
    provider.build(tag, context, "--build-arg", base, "--build-arg", job)
    load_images(provider, tag)
    return tag


def make_images(provider: Provider) -> Images:
    """Build all images and load those that the cluster does not have."""
    images = build_images(provider)
    load_images(provider, images.operator, images.store, images.job, images.job_next)
    return images


def load_images(provider: Provider, *tags: str) -> None:
    """Load what is new since this cluster was given it last."""
    cluster = Kubectl("kube-system").get("namespace", "kube-system")["metadata"]["uid"]
    noted = OUT / "loaded.json"
    loaded: dict[str, Any] = json.loads(noted.read_text()) if noted.exists() else {}
    if loaded.get("cluster") != cluster:
        loaded = {"cluster": cluster, "images": {}}
    for tag in tags:
        image = subprocess.check_output(["docker", "image", "inspect", "--format={{.Id}}", tag], text=True, timeout=COMMAND_S).strip()
        if loaded["images"].get(tag) != image:
            provider.load(tag)
            loaded["images"][tag] = image
            noted.write_text(json.dumps(loaded, indent=1))
