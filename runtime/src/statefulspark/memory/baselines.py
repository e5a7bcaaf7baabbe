"""Memory that a job's processes need before they hold any data. Measured as described in docs/memory.md."""

from __future__ import annotations

from typing import Final

MEBIBYTE: Final = 1 << 20
"""Spark counts memory in MiB."""

HEAP_BYTES_MIN: Final = 480 * MEBIBYTE
"""Smallest heap with which Spark starts: it wants 450 MiB of what the JVM calls its maximum, which leaves out a survivor space."""

HEAP_BYTES_COMFORTABLE: Final = 640 * MEBIBYTE
"""Heap that managed memory does not take away when the manifest leaves both open."""

JVM_OVERHEAD_BYTES: Final = 384 * MEBIBYTE
"""Metaspace, code cache, thread stacks and direct buffers of a small JVM: 252 MiB of an executor and 351 MiB of a driver were the
peaks; 384 MiB is Spark's minimum too."""

JVM_OVERHEAD_BYTES_TIGHT: Final = 256 * MEBIBYTE
"""With less beside its heap no JVM of Spark lives long."""

JVM_OVERHEAD_OF_HEAP: Final = 10
"""A JVM with a large heap needs a tenth of it beside the heap (Spark's ``memoryOverheadFactor`` of JVM jobs)."""

PYTHON_DAEMON_BYTES: Final = 80 * MEBIBYTE
"""PySpark's daemon, from which an executor's Python workers are forked, and a second one where the job's own code has an environment of its own: 37 MiB
each. Where it has our modules loaded (`worker_daemon`), it holds up to 120 MiB, and each slot 57 MiB and each exchange 60 MiB less than below."""

SLOT_BASELINE_BYTES: Final = 96 * MEBIBYTE
"""A slot process that is ready and has seen no row: 83 MiB (143 MiB of RSS, with what it shares with the others)."""

SLOT_WORK_BYTES_MIN: Final = 48 * MEBIBYTE
"""Smallest memory in which a slot sorts, caches and collects changes; batches spill to disk sooner."""

SLOT_WORK_BYTES_MAX: Final = 256 * MEBIBYTE
"""Recommended memory for the same in a large executor."""

EXCHANGE_BASELINE_BYTES: Final = 144 * MEBIBYTE
"""Two Python workers for each exchange task, since Spark keeps one for the exchange (83 MiB) and one for data sources (60 MiB)."""

EXCHANGE_BATCHES_BYTES: Final = 64 * MEBIBYTE
"""Arrow batches on their way through an exchange task, some in each direction."""

DRIVER_PYTHON_BYTES: Final = 384 * MEBIBYTE
"""The driver's Python: coordinator, API and the job's program 135 MiB, and data sources' planners, three daemons and their workers, up to 250."""

DRIVER_PYTHON_BYTES_TIGHT: Final = 240 * MEBIBYTE
"""The same while only the planner that stays is alive."""

RESERVE_SHARE: Final = 10
"""A tenth of native and Python memory is kept for the allocators' fragmentation and for short peaks."""

RESERVE_SHARE_TIGHT: Final = 20
"""Half of that where memory is tight."""
