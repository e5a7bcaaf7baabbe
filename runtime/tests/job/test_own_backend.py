"""A state backend of the job's own is made before anything starts, and reaches slots that cannot import it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from statefulspark.config.job import StatefulSparkJob
from statefulspark.config.manifest import validate_job
from statefulspark.errors import InvalidInputError
from statefulspark.exchange.config import SlotConfig
from statefulspark.exchange.endpoint import Endpoint
from statefulspark.job.start.manifest_settings import slot_options
from statefulspark.job.start.own_backend import own_backend_options
from statefulspark.slot.state_stores import store_opener
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

BACKEND = """
    from statefulspark import StateBackend
    from statefulspark.state.store.heap_store import HeapStore


    class Flights(StateBackend):
        made = []

        def __init__(self, name):
            self.name = name

        @classmethod
        def create_from_config(cls, configuration):
            return cls(f"{configuration.get_string('flights.name', 'none')}-{configuration.get_integer('flights.shards', 1)}")

        def open_store(self, path, resources):
            store = HeapStore(path)
            store.write([(b"name", self.name.encode()), (b"managed", str(resources.managed_bytes).encode())])
            return store


    class Stranger:
        pass
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a job's script, importable as `load_pipeline` leaves it."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "flight_backend.py").write_text(dedent(BACKEND))
    (folder / "script.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("flight_backend", None)


def _manifest(code: Path, kind: str, **options: Any) -> StatefulSparkJob:
    return validate_job(
        {
            "apiVersion": "statefulspark.io/v1alpha1",
            "kind": "StatefulSparkJob",
            "metadata": {"name": "flights"},
            "spec": {
                "job": {"script": str(code / "script.py")},
                "parallelism": 1,
                "checkpointing": {"dir": f"file://{code}/storage"},
                "stateBackend": {"type": kind, "options": options},
            },
        }
    )


def test_the_slot_makes_the_class_with_its_settings(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the module cannot be imported, because it travels with the class; within the slot's managed memory."""
    manifest = _manifest(code, "flight_backend:Flights", **{"flights.name": "x", "flights.shards": 3})
    options = {**slot_options(manifest), **own_backend_options(manifest)}
    config = SlotConfig(
        coordinator=Endpoint(location="grpc+unix:///nowhere", secret=""),
        job_name="flights",
        parallelism=1,
        max_parallelism=8,
        steps=b"",
        python_path=(),
        store=open_store(f"file://{code}/storage"),
        storage=StorageSettings(),
        **options,
    )
    sys.modules.pop("flight_backend")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(code)])
    store = store_opener(config)(code / "store")
    assert "flight_backend" not in sys.modules
    assert store.get(b"name") == b"x-3"
    assert store.get(b"managed") == str(manifest.spec.memory_plan().managed_bytes).encode()
    store.close()


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "flight_backend:Stranger",
            {},
            "spec.stateBackend.type: Stranger is not a StateBackend. Derive it from statefulspark.StateBackend",
        ),
        ("flight_backned:Flights", {}, "spec.stateBackend.type: cannot import 'flight_backned'. Put it beside the script"),
        ("flight_backend:Missing", {}, "spec.stateBackend.type: flight_backend has no class 'Missing'"),
        ("flight_backend:Flights", {"flights.shards": "many"}, "spec.stateBackend.options.flights.shards: is not a whole number"),
    ],
)
def test_a_wrong_backend_is_refused_before_anything_starts(code: Path, kind: str, options: dict[str, Any], sentence: str) -> None:
    """By the driver, naming the field."""
    with pytest.raises(InvalidInputError, match=f"^{sentence}"):
        own_backend_options(_manifest(code, kind, **options))


def test_the_built_in_ones_load_nothing(code: Path) -> None:
    assert own_backend_options(_manifest(code, "memory")) == {}
    assert "flight_backend" not in sys.modules
