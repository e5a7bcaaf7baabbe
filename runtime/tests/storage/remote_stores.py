"""Stores on real servers of Google's and Microsoft's protocols, each behind a proxy that can fail."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.blob import ContainerClient
from runtime.tests.storage.emulators import AZURITE, FAKE_GCS, free_port, required, running
from runtime.tests.storage.flaky_proxy import FlakyProxy

from statefulspark.storage.azure import KEY_VARIABLE, AzureStore
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.gcs import GcsStore
from statefulspark.storage.limits import StoreLimits
from statefulspark.storage.storage_settings import StorageSettings

BUCKET = "bucket"
ACCOUNT = "statefulspark"
ACCOUNT_KEY = base64.b64encode(hashlib.sha256(b"a secret of the tests").digest()).decode()
AZURE_HOST = f"{ACCOUNT}.dfs.core.windows.net"
SMALL = StoreLimits(part_bytes=5 << 20, connect_timeout_s=2, read_timeout_s=5)
"""Small parts, so that large files are quick."""
IMPATIENT = StoreLimits(part_bytes=5 << 20, connect_timeout_s=1, read_timeout_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running server and how stores on it are opened."""

    proxy: FlakyProxy
    root: str
    """URL of the bucket or container, as in a manifest."""
    settings: StorageSettings
    environment: dict[str, str]
    """Variables with credentials."""
    open: Callable[[str, StorageSettings, StoreLimits], ObjectStore]
    """A store below a prefix."""
    missing: Callable[[StorageSettings, StoreLimits], ObjectStore]
    """A store in a bucket that does not exist."""
    attempts: int
    """Requests that the client makes of one that fails."""

    def store(self, limits: StoreLimits = SMALL, prefix: str | None = None) -> ObjectStore:
        """An empty store, or one below a given prefix."""
        return self.open(prefix or f"tests/{uuid.uuid4().hex}", self.settings, limits)


@contextmanager
def gcs_service(folder: Path) -> Iterator[Service]:
    """fake-gcs-server."""
    program, port = required(FAKE_GCS), free_port()
    proxy = FlakyProxy("127.0.0.1", port)
    host = proxy.url.removeprefix("http://")
    # Uploads in parts go to the address that the server names: the proxy's.
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-log-level", "error"]
    command += ["-external-url", proxy.url, "-public-host", host]
    server = f"http://127.0.0.1:{port}/storage/v1/b"
    try:
        with running(command, f"{server}?project=tests", folder / "fake-gcs-server.log"):
            body = json.dumps({"name": BUCKET}).encode()
            urllib.request.urlopen(urllib.request.Request(f"{server}?project=tests", body, {"Content-Type": "application/json"})).close()
            yield Service(
                proxy=proxy,
                root=f"gs://{BUCKET}",
                settings=StorageSettings(endpoint=proxy.url),
                environment={},
                open=lambda prefix, settings, limits: GcsStore(BUCKET, prefix, settings, limits=limits),
                missing=lambda settings, limits: GcsStore("nowhere", "", settings, limits=limits),
                attempts=1,
            )
    finally:
        proxy.close()


@contextmanager
def azure_service(folder: Path) -> Iterator[Service]:
    """Azurite."""
    program, port = required(AZURITE), free_port()
    proxy = FlakyProxy("127.0.0.1", port)
    command = [
        "node",
        str(program),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--silent",
        "--disableTelemetry",
    ]
    try:
        with running(command, f"http://127.0.0.1:{port}/", folder / "azurite.log", {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}):
            credential = AzureNamedKeyCredential(ACCOUNT, ACCOUNT_KEY)
            with ContainerClient(
                f"http://127.0.0.1:{port}/{ACCOUNT}", BUCKET, credential=credential, api_version="2023-11-03"
            ) as container:
                container.create_container()
            yield Service(
                proxy=proxy,
                root=f"abfss://{BUCKET}@{AZURE_HOST}",
                settings=StorageSettings(endpoint=f"{proxy.url}/{ACCOUNT}"),
                environment={KEY_VARIABLE: ACCOUNT_KEY},
                open=lambda prefix, settings, limits: AzureStore(AZURE_HOST, BUCKET, prefix, settings, limits=limits),
                missing=lambda settings, limits: AzureStore(AZURE_HOST, "nowhere", "", settings, limits=limits),
                attempts=3,
            )
    finally:
        proxy.close()


SERVICES = {"gs": gcs_service, "abfss": azure_service}
"""Scheme -> what serves it."""
