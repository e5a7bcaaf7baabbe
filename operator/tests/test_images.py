"""What the images hold: nothing that is not locked, and for the operator nothing of Spark."""

from __future__ import annotations

import re
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
for name in ("config.kubernetes", "config.changes", "config.manifest", "checkpoint.catalog", "checkpoint.lineage", "checkpoint.retention",
             "memory.split", "storage.open", "storage.s3"):
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
    assert "boto3" in loaded
    assert not loaded & {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "rocksdict", "cloudpickle", "psutil", "typer"}
    assert not {"pyspark", "pyarrow", "rocksdict"} & {name for name, _ in pins("images/operator.lock")}


def test_the_image_is_built_from_what_is_sent() -> None:
    """Whatever the Dockerfile copies is let through by .dockerignore."""
    copied = re.findall(r"^COPY (.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for path in (each for line in copied for each in line.split()):
        assert (ROOT / path).exists(), path
        assert path in kept or f"{Path(path).parent}/*{Path(path).suffix}" in kept, path
