"""Memory of the driver pod: its JVM, and the Python process with coordinator, API and the job's own program. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from statefulspark.errors import InvalidInputError
from statefulspark.memory.baselines import DRIVER_PYTHON_BYTES, DRIVER_PYTHON_BYTES_TIGHT, HEAP_BYTES_MIN, JVM_OVERHEAD_BYTES_TIGHT
from statefulspark.memory.process_memory import JvmRequest, Part, ProcessMemory, fill_pod
from statefulspark.sizes import short_size

DRIVER: Final = "driver"
PYTHON: Final = "python"


def plan_driver(jvm: JvmRequest, python_bytes: int | None = None) -> ProcessMemory:
    """Divide the driver pod.

    Args:
        jvm: The whole pod, the JVM's parts and the reserve.
        python_bytes: The Python process; None takes what it needs without data of the job's own.

    Raises:
        InvalidInputError: The parts do not fit the whole or do not add up; the text spells the sum out and names the smallest whole that
            works. ``field`` is relative to the driver.
    """
    try:
        return _plan(jvm, python_bytes, tight=False)
    except InvalidInputError as error:
        if error.remedy is not None:
            raise
    try:
        return _plan(jvm, python_bytes, tight=True)
    except InvalidInputError as error:
        smallest = short_size(smallest_driver_bytes(jvm, python_bytes, tight=True), up=True)
        raise InvalidInputError(error.message, field=error.field, remedy=f"Set memory to at least {smallest}") from None


def smallest_driver_bytes(jvm: JvmRequest, python_bytes: int | None = None, *, tight: bool) -> int:
    """Return the smallest memory of the whole pod at which the rest works; without ``tight``, works in comfort."""
    overhead_bytes = jvm.jvm_overhead_bytes or (JVM_OVERHEAD_BYTES_TIGHT if tight else None)
    least = replace(jvm, total_bytes=None, heap_bytes=HEAP_BYTES_MIN, jvm_overhead_bytes=overhead_bytes)
    return _plan(least, python_bytes, tight=tight).total_bytes


def _plan(jvm: JvmRequest, python_bytes: int | None, *, tight: bool) -> ProcessMemory:
    if python_bytes is None:
        python_bytes = DRIVER_PYTHON_BYTES_TIGHT if tight else DRIVER_PYTHON_BYTES
    return fill_pod(DRIVER, jvm, (Part(name=PYTHON, each_bytes=python_bytes),), tight=tight)
