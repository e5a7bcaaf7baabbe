"""The process that writes the files of a canonical savepoint for a driver.

Converting is work for Python, and would hold up batches in the driver's process. The driver writes a `Conversion` to standard input and keeps
it open, so this process ends with its driver however that ends. It publishes nothing: only the driver knows whether it still runs the job.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from statefulspark import failpoints
from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.metadata import decode_metadata
from statefulspark.errors import InternalError, StatefulSparkError
from statefulspark.rpc.codec import decode, encode
from statefulspark.rpc.messages.conversion import Conversion, ConversionResult, Converted, StateWithoutTable
from statefulspark.state.store.own_backend import is_own_backend, trust_backend
from statefulspark.state_tables.canonical.files import write_unpublished
from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store

ORIGIN_FILE: Final = "origin"
"""In the working folder: ``_metadata`` of what is converted."""
RESULT_FILE: Final = "result"
"""In the working folder: a `ConversionResult`, whole once this process has ended with status 0."""


def main(folder: Path, requests: FileIO) -> None:
    """Serve one request.

    Args:
        folder: The driver's; it removes the folder.
        requests: Has the request in one line, and its end when the driver has ended.
    """
    _be_ended_first()
    conversion = decode(requests.readline(), Conversion)
    threading.Thread(target=_end_with_driver, args=(requests,), name="driver-watch", daemon=True).start()
    failpoints.reach("conversion.begun")
    try:
        result = ConversionResult(converted=_converted(conversion, folder))
    except StatefulSparkError as error:
        result = ConversionResult(error=error)
    except Exception as error:  # noqa: BLE001  the driver says what went wrong, whatever it is
        result = ConversionResult(error=InternalError(f"converting failed: {type(error).__name__}"))
    failpoints.reach("conversion.written")
    (folder / RESULT_FILE).write_bytes(encode(result))


def _be_ended_first() -> None:
    """If the container runs out of memory, let the kernel end this process and not the driver: only a savepoint is lost."""
    with suppress(OSError):  # no Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_driver(requests: FileIO) -> None:
    requests.read()
    os._exit(1)  # nobody would publish what is written from now on


def _converted(conversion: Conversion, folder: Path) -> Converted:
    def opened(url: str) -> ObjectStore:
        return open_store(url, conversion.storage)

    path = folder / ORIGIN_FILE
    metadata = decode_metadata(path.read_bytes(), path=str(path))
    for slot in metadata.slots:
        # The driver took this snapshot just now: its slots have the job's own backend.
        if is_own_backend(slot.backend):
            trust_backend(slot.backend)
    written = write_unpublished(
        StoredCheckpoint(opened(conversion.origin_url), conversion.origin_folder, metadata),
        opened(conversion.target_url),
        conversion.folder,
        open_store=opened,
        progress=lambda _: failpoints.reach("conversion.part"),
    )
    missing = (StateWithoutTable(uid=uid, state=state, reason=reason) for (uid, state), reason in written.without_table.items())
    return Converted(metadata=written.metadata, without_table=tuple(missing))


if __name__ == "__main__":
    # Unbuffered: the interpreter cannot end while a thread reads from a buffer.
    main(Path(sys.argv[1]), FileIO(0, closefd=False))
