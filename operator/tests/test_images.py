"""What the images hold: nothing that is not locked, and for the operator nothing of Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINS = re.compile(r"^([a-zA-Z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)
OPERATOR_MODULES = """
import pkgutil, importlib, sys
import statefulspark_operator
for each in pkgutil.walk_packages(statefulspark_operator.__path__, "statefulspark_operator."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
for name in ("config.kubernetes", "config.changes", "config.manifest", "memory.split"):
    importlib.import_module("statefulspark." + name)
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def pins(name: str) -> set[tuple[str, str]]:
    """Package and version of each line of a lock file; markers may choose between two versions."""
    return set(PINS.findall((ROOT / name).read_text()))


@pytest.mark.parametrize("image", ["job", "operator"])
def test_images_take_the_locked_versions(image: str) -> None:
    """What is tested is what is shipped; every package has its hashes."""
    shipped, tested = pins(f"images/{image}.lock"), pins("requirements.lock")
    assert len(shipped) > 20
    assert shipped <= tested
    text = (ROOT / f"images/{image}.lock").read_text()
    assert len(shipped) == len(re.findall(r"^[^# \n]+==[^\n]*\\\n    --hash=sha256:", text, re.MULTILINE))


def test_the_operator_needs_nothing_of_spark() -> None:
    """Its image has no Java, Spark, Arrow or RocksDB, so none of its modules may import them."""
    done = subprocess.run([sys.executable, "-c", OPERATOR_MODULES], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    # It opens no storage: without a client there is nothing that could show its own cloud identity to an endpoint that a tenant names.
    assert not loaded & {"boto3", "botocore"}
    assert not {"boto3", "botocore"} & {name for name, _ in pins("images/operator.lock")}
    assert not loaded & {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "rocksdict", "cloudpickle", "psutil", "typer"}
    assert not {"pyspark", "pyarrow", "rocksdict"} & {name for name, _ in pins("images/operator.lock")}


def test_the_image_is_built_from_what_is_sent() -> None:
    """Whatever the Dockerfile copies is let through by .dockerignore."""
    copied = re.findall(r"^COPY (?!--from=)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for path in (each for line in copied for each in line.split()):
        assert (ROOT / path).exists(), path
        assert path in kept or f"{Path(path).parent}/*{Path(path).suffix}" in kept, path


def stages() -> dict[str, str]:
    """The Dockerfile's stages by name: what each begins from, and its lines."""
    text = (ROOT / "Dockerfile").read_text()
    return {
        name: f"FROM {base}\n{body}"
        for base, name, body in re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL)
    }


def test_what_installs_is_not_shipped() -> None:
    """Stages with pip hand over what they installed; those that are shipped begin from the bare base and run no pip."""
    found = stages()
    shipped = [found[name] for name in ("base", "operator", "job")]
    assert not [line for body in shipped for line in body.splitlines() if re.search(r"\bpip3? (install|wheel)|-m pip|ensurepip --", line)]
    assert "FROM base\n" in found["operator"]
    assert "FROM base\n" in found["job"]
    assert "FROM ${BASE_IMAGE}\n" in found["base"]
    for image in ("job", "operator"):
        assert not {"hatchling", "pip", "setuptools", "trove-classifiers"} & {name for name, _ in pins(f"images/{image}.lock")}


def test_the_base_is_pinned() -> None:
    """By digest: the same name must not be another image tomorrow."""
    assert re.search(r"^ARG BASE_IMAGE=\S+@sha256:[0-9a-f]{64}$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_test_hooks_stay_out_of_images(tmp_path: Path) -> None:
    """Without the package, as in an image, a point does nothing and storage opens as it is."""
    assert "*/statefulspark/faults'" in stages()["project"]
    source = shutil.copytree(
        ROOT / "runtime/src/statefulspark", tmp_path / "statefulspark", ignore=shutil.ignore_patterns("faults", "__pycache__")
    )
    assert not (source / "faults").exists()
    code = "from statefulspark import failpoints; from statefulspark.storage.open import open_store; failpoints.reach('x'); print(type(open_store('/s').inner).__name__)"
    environ = os.environ | {"PYTHONPATH": str(tmp_path), "STATEFULSPARK_FAILPOINTS": "x:*", "STATEFULSPARK_STORAGE_FAULTS": "rate=1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=environ)
    assert done.stdout.strip() == "LocalStore", done.stderr
