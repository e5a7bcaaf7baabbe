"""The soak of managed memory in short: the same processes and the same load as `make soak`, less of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from soak.job import SoakSettings
from soak.measure import soak

from statefulspark.slot.allocator import allocator_environment


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_slot_stays_within_its_managed_memory(tmp_path: Path) -> None:
    """A slot with 50 states takes no more than its 64 MiB and a tenth above the same slot without a store.

    600 MiB go through it, nine times its budget, with batches that spill, and checkpoints whose snapshots are slow, so that what is committed
    meanwhile is held. With write buffers that are not shared, with malloc left alone, or with held changes that have a bound of their own,
    it takes too much.
    """
    settings = SoakSettings(
        managed_bytes=64 << 20,
        written_bytes=600 << 20,
        slots=1,
        keys=1_000,
        checkpoint_s=1.0,
        environment=allocator_environment(),
    )
    result = soak(settings, tmp_path, baseline_bytes=450 << 20)
    assert result.soak.checkpoints >= 1
    assert result.soak.written_bytes >= 600 << 20
    assert result.native_bytes > 32 << 20, "the store was hardly used: nothing is proved"
    assert result.holds, f"{result.native_bytes >> 20} MiB above the baseline of {result.baseline_bytes >> 20} MiB"
