"""The container's memory as the kernel reports it: limit, peak, free memory, and processes ended for lack of it.

A slot that the kernel ends does not end its container, whose first process is the executor's JVM, so Kubernetes learns nothing of it. The
count stays with the container's cgroup and is reported by the next process in it.
Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.events, memory.max, memory.peak, memory.stat) and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from statefulspark.rpc.messages.heartbeat import ContainerMemory

CGROUPS: Final = Path("/sys/fs/cgroup")
"""Folder in which a container sees its own cgroup."""
_UNLIMITED: Final = 1 << 60
"""Version 1 writes about 2^63 for no limit."""
_VERSIONS: Final = (
    ("memory.max", "memory.peak", "memory.events"),
    ("memory/memory.limit_in_bytes", "memory/memory.max_usage_in_bytes", "memory/memory.oom_control"),
)
_USED: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def container_memory(root: Path = CGROUPS) -> ContainerMemory | None:
    """Memory of this container; None if nothing limits it."""
    for limit_file, peak_file, kills_file in _VERSIONS:
        limit = _number(_text(root / limit_file))
        if limit is None or limit >= _UNLIMITED:
            continue
        peak = _number(_text(root / peak_file))
        kills = _counts(root / kills_file).get("oom_kill")
        return ContainerMemory(limit_bytes=limit, peak_bytes=peak, oom_kills=_number(kills or ""))
    return None


def free_memory_bytes(root: Path = CGROUPS) -> int | None:
    """Memory that processes of this container can still take; None if nothing limits it. Cached files that were not read again make room."""
    for limit_file, used_file, stat_file, cached in _USED:
        limit, used = _number(_text(root / limit_file)), _number(_text(root / used_file))
        if limit is None or limit >= _UNLIMITED or used is None:
            continue
        return max(0, limit - max(0, used - (_number(_counts(root / stat_file).get(cached, "")) or 0)))
    return None


def _counts(path: Path) -> dict[str, str]:
    return dict(line.split(" ", 1) for line in _text(path).splitlines() if " " in line)


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, ValueError):
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None
