"""Starts, watches and ends the process that writes the files of a canonical savepoint."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.metadata import encode_metadata
from statefulspark.coordinator.snapshots.conversion_process import ORIGIN_FILE, RESULT_FILE
from statefulspark.errors import InternalError, UnavailableError
from statefulspark.rpc.codec import decode, encode
from statefulspark.rpc.messages.conversion import Conversion, ConversionResult, Converted
from statefulspark.storage.local.os_errors import local_disk
from statefulspark.storage.local.working_folder import open_scratch_folder
from statefulspark.storage.storage_settings import StorageSettings

_log = structlog.get_logger("statefulspark.checkpoints")
_MODULE: Final = "statefulspark.coordinator.snapshots.conversion_process"
_POLL_S: Final = 0.05


def convert(origin: StoredCheckpoint, target_url: str, folder: str, storage: StorageSettings, check: Callable[[], None]) -> Converted:
    """Write the files of a canonical savepoint in a process of its own, and wait for it.

    If this raises, the process has ended, and has left files that nobody needs.

    Args:
        origin: What is converted; its ``_metadata`` need not be stored.
        target_url: The folder above the savepoint's.
        folder: Name of the savepoint's folder; nobody else writes there.
        storage: How the process reaches storage.
        check: Called several times a second; raises when nobody wants the savepoint any more.

    Raises:
        CorruptDataError: A file of the origin is missing or damaged.
        UnavailableError: Storage or the local disk did not answer, or the process died.
    """
    conversion = Conversion(origin_url=origin.store.url, origin_folder=origin.folder, target_url=target_url, folder=folder, storage=storage)
    scratch = open_scratch_folder()
    try:
        with local_disk():
            (scratch.path / ORIGIN_FILE).write_bytes(encode_metadata(origin.metadata))
        status = _run(scratch.path, encode(conversion) + b"\n", check)
        if status != 0:
            raise UnavailableError(f"the process that converts the savepoint ended with status {status}; the log may say why")
        with local_disk():
            result = decode((scratch.path / RESULT_FILE).read_bytes(), ConversionResult)
    finally:
        scratch.close()
    if result.converted is None:
        raise result.error or InternalError("the process that converts the savepoint has said nothing")
    return result.converted


def _run(folder: Path, request: bytes, check: Callable[[], None]) -> int:
    """Return the status with which the process ended; it has ended as well if this raises."""
    with local_disk():
        inherited, own = os.pipe()
    # Closing this end of the pipe ends the process, too.
    with os.fdopen(own, "wb", buffering=0) as pipe:
        try:
            process = _started(folder, inherited)
        finally:
            os.close(inherited)
        try:
            with suppress(BrokenPipeError):  # it is dead, as its status says
                pipe.write(request)
            while True:
                check()
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_S)
        finally:
            process.kill()
            process.wait()


def _started(folder: Path, requests: int) -> subprocess.Popen[bytes]:
    with local_disk():
        # In a session of its own: Ctrl-C is for the driver, which decides what becomes of the savepoint.
        process = subprocess.Popen(  # noqa: S603  our own module
            [sys.executable, "-m", _MODULE, str(folder)],
            stdin=requests,
            stdout=subprocess.DEVNULL,
            env=_environment(folder),
            start_new_session=True,
        )
    _log.info("converting a savepoint", pid=process.pid)
    return process


def _environment(folder: Path) -> dict[str, str]:
    """The driver's environment: credentials in it are those that the driver itself uses. A state backend of the job's own is imported as in the driver."""
    path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
    return os.environ | {"TMPDIR": str(folder), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
