"""The container's memory as the kernel tells it, in both versions of cgroups, from files as kernels write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.rpc.messages.heartbeat import ContainerMemory
from statefulspark.slot.container import container_memory, free_memory_bytes


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


VERSION_2 = {
    "memory.max": "1610612736\n",
    "memory.peak": "1610600000\n",
    "memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n",
}
VERSION_1 = {
    "memory/memory.limit_in_bytes": "1610612736\n",
    "memory/memory.max_usage_in_bytes": "1610600000\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}


@pytest.mark.parametrize("files", [VERSION_2, VERSION_1], ids=["v2", "v1"])
def test_limit_peak_and_kills(tmp_path: Path, files: dict[str, str]) -> None:
    assert container_memory(write(tmp_path, files)) == ContainerMemory(limit_bytes=1610612736, peak_bytes=1610600000, oom_kills=2)


@pytest.mark.parametrize(
    "files",
    [
        {},
        VERSION_2 | {"memory.max": "max\n"},
        VERSION_1 | {"memory/memory.limit_in_bytes": "9223372036854771712\n"},
    ],
    ids=["none", "v2", "v1"],
)
def test_without_a_limit_there_is_nothing_to_say(tmp_path: Path, files: dict[str, str]) -> None:
    """The counts of a whole machine are not this job's."""
    assert container_memory(write(tmp_path, files)) is None


def test_an_older_kernel_keeps_no_peak(tmp_path: Path) -> None:
    """memory.peak came with Linux 5.19, oom_kill of version 1 with 4.13."""
    assert container_memory(write(tmp_path, {"memory.max": "4096", "memory.events": "low 0"})) == ContainerMemory(
        limit_bytes=4096, peak_bytes=None, oom_kills=None
    )


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": "1000\n", "memory.current": "900\n", "memory.stat": "anon 500\ninactive_file 300\nactive_file 100\n"},
        {
            "memory/memory.limit_in_bytes": "1000\n",
            "memory/memory.usage_in_bytes": "900\n",
            "memory/memory.stat": "cache 400\ninactive_file 1\ntotal_inactive_file 300\n",
        },
    ],
    ids=["v2", "v1"],
)
def test_free_memory_counts_files_that_can_be_dropped(tmp_path: Path, files: dict[str, str]) -> None:
    assert free_memory_bytes(write(tmp_path, files)) == 400


@pytest.mark.parametrize("files", [{}, {"memory.max": "max\n", "memory.current": "900\n"}, {"memory.max": "1000\n"}])
def test_free_memory_without_a_limit_or_a_figure(tmp_path: Path, files: dict[str, str]) -> None:
    assert free_memory_bytes(write(tmp_path, files)) is None
