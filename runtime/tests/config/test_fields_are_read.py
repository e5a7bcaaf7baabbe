"""No setting is dead: production code reads every field of the specs. vulture checks names, which a dead `api.host` shares with others."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from statefulspark.config.job import StatefulSparkJobSpec
from statefulspark.config.snapshot import StateSnapshotSpec

from .reading_code import models_of, unread_fields

ROOT = Path(__file__).parents[3]
COMPARED_ONLY = {
    "StatefulSparkJobSpec.restart_nonce",  # any change of it restarts the job, so its value means nothing
}


def test_production_code_reads_every_field_of_the_specs() -> None:
    sources = [path.read_text() for root in ("runtime/src", "operator/src") for path in (ROOT / root).rglob("*.py")]
    models = models_of(StatefulSparkJobSpec) | models_of(StateSnapshotSpec)
    assert len(models) > 20
    assert unread_fields(models, sources) == COMPARED_ONLY


class Endpoint(BaseModel):
    host: str
    port: int


class Store(BaseModel):
    host: str
    retries: int


class Spec(BaseModel):
    endpoint: Endpoint | None = None
    stores: tuple[Store, ...] = ()


def test_a_dead_field_is_found_beside_one_of_the_same_name() -> None:
    source = """
def connect(spec: Spec) -> None:
    for store in spec.stores:
        print(store.host, store.retries)
    if (endpoint := spec.endpoint) is not None:
        print(endpoint.port)
"""
    assert unread_fields(models_of(Spec), [source]) == {"Endpoint.host"}
    assert unread_fields(models_of(Spec), [source, "def show(endpoint: Endpoint) -> str:\n    return endpoint.host"]) == set()
    assert unread_fields(models_of(Spec), [source, "def set(endpoint: Endpoint) -> None:\n    endpoint.host = ''"]) == {"Endpoint.host"}
