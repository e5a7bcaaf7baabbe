"""Slots under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statefulspark.process.api.functions import KeyedProcessFunction

from .one_slot import Coordinator, Count, Slot


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    coordinator = Coordinator()
    yield coordinator
    coordinator.peer.close()
    coordinator.service.shutdown()


@pytest.fixture
def make_slot(tmp_path: Path, coordinator: Coordinator) -> Iterator[Callable[..., Slot]]:
    made: list[Slot] = []

    def make(dirty_bytes: int, function: KeyedProcessFunction | None = None, *, cache_bytes: int = 0, batch: int = -1) -> Slot:
        made.append(Slot(tmp_path, coordinator, dirty_bytes, function or Count(), cache_bytes=cache_bytes, batch=batch))
        return made[-1]

    yield make
    for slot in made:
        slot.close()
