"""Downloads from S3 over a connection that ends within answers: what arrives is what was stored, or nothing and an error."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from runtime.tests.depth import examples
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import Fault, FlakyProxy

from statefulspark.errors import UnavailableError
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.s3 import downloads as s3_downloads
from statefulspark.storage.s3.downloads import Download
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

RANGE = 100_000
ATTEMPTS = 3


@pytest.fixture
def store(settings: StorageSettings, limits: S3Limits, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> S3Store:
    """Small ranges and reads, so that objects of some kilobytes are large."""
    monkeypatch.setattr(s3_downloads, "_RANGE_BYTES", RANGE)
    monkeypatch.setattr(s3_downloads, "PIECE_BYTES", 7000)
    return S3Store(BUCKET, f"downloads/{request.node.name}", settings, limits=replace(limits, attempts=ATTEMPTS))


def gets(proxy: FlakyProxy) -> list[str | None]:
    """The range of each request, of which there are no others than GETs."""
    assert {method for method, _ in proxy.requests} <= {"GET"}
    return [headers.get("Range") for headers in proxy.headers]


@pytest.mark.parametrize("size", [0, 1, 6999, 7000, 2 * RANGE])
def test_one_request_for_an_object(store: S3Store, proxy: FlakyProxy, tmp_path: Path, size: int) -> None:
    """No HEAD comes before the GET."""
    data = os.urandom(size)
    store.put("a", data)
    proxy.requests.clear()
    proxy.headers.clear()
    store.get_file("a", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data
    assert gets(proxy) == [None]


@pytest.mark.parametrize("size", [2 * RANGE + 1, 3 * RANGE, 5 * RANGE - 1])
def test_a_large_object_comes_in_ranges(store: S3Store, proxy: FlakyProxy, tmp_path: Path, size: int) -> None:
    """Each byte is asked for once, but for those of the first answer, which says how many there are."""
    data = os.urandom(size)
    store.put("a", data)
    proxy.requests.clear()
    proxy.headers.clear()
    store.get_file("a", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == data
    asked = [found.removeprefix("bytes=").split("-") for found in gets(proxy) if found is not None]
    assert sorted((int(first), int(last)) for first, last in asked) == [
        (first, min(first + RANGE, size) - 1) for first in range(0, size, RANGE)
    ]


@pytest.mark.parametrize("seed", range(examples(12, 200)))
def test_any_interruption(store: S3Store, proxy: FlakyProxy, tmp_path: Path, seed: int) -> None:
    """A download continues where its connection ended; after too many of them it is an error, and the file of before stays."""
    chance = random.Random(seed)
    data = chance.randbytes(chance.choice([0, 1, 5000, 50_000, RANGE, 2 * RANGE, 4 * RANGE + 17]))
    store.put("a", data)
    target = tmp_path / "target"
    target.write_bytes(b"old")
    cuts = [Fault(cut_after=chance.choice([0, 1, 6999, 7000, 7001, chance.randrange(RANGE)])) for _ in range(chance.randrange(5))]
    proxy.matches, proxy.faults = lambda method, _path: method == "GET", list(cuts)
    try:
        store.get_file("a", target)
    except UnavailableError:
        assert len(cuts) >= ATTEMPTS
        assert target.read_bytes() == b"old"
    else:
        assert target.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("size", [50_000, 3 * RANGE])
def test_an_object_that_is_replaced_meanwhile(
    store: S3Store, proxy: FlakyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Two objects are never mixed."""
    store.put("a", b"a" * size)
    go_on = Download._rest

    def replaced_before(self: Download, start: int, end: int, tag: str) -> object:
        store.put("a", b"b" * size)
        return go_on(self, start, end, tag)

    monkeypatch.setattr(Download, "_rest", replaced_before)
    proxy.matches, proxy.faults = lambda method, _path: method == "GET", [Fault(cut_after=9000)]
    with pytest.raises(UnavailableError, match="was replaced while it was read"):
        store.get_file("a", tmp_path / "target")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    store.get_file("a", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"b" * size
