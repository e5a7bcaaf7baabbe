"""Arguments and options of the commands that look into storage, and the store they open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from statefulspark.storage.base import ObjectStore

CheckpointArgument = Annotated[
    str, typer.Argument(help="URL or path of a checkpoint or savepoint, or of a job's directory to use its latest checkpoint.")
]
NewSavepointArgument = Annotated[str, typer.Argument(metavar="DIR", help="URL or path of the directory in which to create the savepoint.")]
EndpointOption = Annotated[
    str | None, typer.Option("--endpoint", help="URL of the object store's service. Defaults to that of AWS, Google Cloud or Azure.")
]
RegionOption = Annotated[str | None, typer.Option("--region", help="AWS region. Defaults to AWS_REGION or the shared AWS configuration.")]
PathStyleOption = Annotated[
    bool | None,
    typer.Option("--path-style/--virtual-host", help="Address buckets as endpoint/bucket (default with --endpoint) or bucket.endpoint."),
]

BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="MODULE:CLASS",
        help="State backend of your own that the checkpoint names. Its module is imported only if you name it here.",
    ),
]


def storage_opener(
    endpoint: str | None, region: str | None, path_style: bool | None, ca_bundle: str | None = None, *, backend: str | None = None
) -> Callable[[str], ObjectStore]:
    """Return what opens the store of a URL; credentials come from the usual AWS places.

    Args:
        endpoint: URL of the service.
        region: AWS region.
        path_style: How buckets are addressed.
        ca_bundle: File with the certificates of authorities.
        backend: State backend of one's own that may be imported to read state.

    Raises:
        InvalidInputError: The endpoint is no URL, or the backend is no name of a class.
    """
    # Imported here so that the command's help does not wait for the S3 client.
    if backend is not None:
        from statefulspark.state.store.own_backend import trust_backend

        trust_backend(backend)
    from statefulspark.storage.open import open_store
    from statefulspark.storage.storage_settings import StorageSettings

    settings = StorageSettings(endpoint=endpoint, region=region, path_style=path_style, ca_bundle=ca_bundle)
    return lambda url: open_store(url, settings)


def bytes_text(size_bytes: int) -> str:
    """A size for people, e.g. ``1.5 MiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def time_text(time_ms: int | None) -> str | None:
    """A time for people, in UTC."""
    if time_ms is None:
        return None
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        # Timers may be set for the end of all time.
        return str(time_ms)


def age_text(age_s: float) -> str:
    """An age for people, in its largest fitting unit."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_s >= 2 * length_s:
            return f"{age_s / length_s:.0f} {unit}"
    return f"{max(age_s, 0):.0f} s"
