"""What each cleanup strategy lets sweeps do, and what is reported of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from statefulspark.state.api.ttl import Builder
from statefulspark.testing.keyed_state import KeyedSlot

from .expiring_states import sweep, ttl, value_descriptor


@pytest.mark.parametrize(
    ("configure", "left"),
    [
        (lambda builder: builder, 0),
        (Builder.disable_cleanup_in_background, 9),
        (lambda builder: builder.cleanup_incrementally(2).disable_cleanup_in_background(), 9 - 2),
        (lambda builder: builder.disable_cleanup_in_background().cleanup_incrementally(2), 9 - 2),
        (lambda builder: builder.cleanup_incrementally(2, True).disable_cleanup_in_background(), 9 - 2 - 2 * 3),
        (lambda builder: builder.cleanup_incrementally(2, True), 0),
        (lambda builder: builder.cleanup_in_rocksdb_compact_filter(1000).disable_cleanup_in_background(), 0),
        (lambda builder: builder.cleanup_full_snapshot().disable_cleanup_in_background(), 9),
    ],
)
def test_strategies_set_the_pace(slot: KeyedSlot, configure: Callable[[Builder], Builder], left: int) -> None:
    """Without the default exactly the checks of the explicit strategy: per access, and per row if asked; opening a key group is 8 checks."""
    state = slot.backend.value_state(value_descriptor(ttl(configure)))
    with slot.batch():
        for key in "`bcdefghi":  # in order of key groups; the first one is the first of the slot
            slot.key(key)
            state.update(1)
    sweep(slot)
    slot.now_ms += 200
    slot.begin()
    slot.key("z")
    state.update(1)
    slot.backend.finish_batch(lambda changes: None, rows=3)
    sweep(slot)
    assert len(slot.entries()) == left + 1


def test_reading_is_an_access(slot: KeyedSlot) -> None:
    """A batch that only reads lets explicit checks run too; a key that is read and written counts once."""
    descriptor = value_descriptor(ttl(lambda builder: builder.cleanup_incrementally(1).disable_cleanup_in_background()))
    state = slot.backend.value_state(descriptor)
    with slot.batch():
        for key in "`bcdefghi":
            slot.key(key)
            state.update(1)
    sweep(slot)
    slot.now_ms += 200
    with slot.batch("z"):
        state.value()
    sweep(slot)
    assert len(slot.entries()) == 8
    with slot.batch("y"):
        state.value()
        state.update(1)
    sweep(slot)
    assert len(slot.entries()) == 8 - 1 + 1


def test_what_cleanup_did_is_reported(slot: KeyedSlot) -> None:
    """Deleted entries by state, and how late the sweep was when the clock moved, in units of two fifths of the time to live."""
    state = slot.backend.value_state(value_descriptor(ttl()))
    with slot.batch():
        for letter in "abcdefghij":
            slot.key(letter)
            state.update(1)
    sweep(slot)
    assert slot.backend.cleanup_report().expired == {"value": 0}
    slot.now_ms += 200
    with slot.batch("z"):
        state.update(1)
    sweep(slot)
    report = slot.backend.cleanup_report()
    assert (report.expired, report.lag) == ({"value": 10}, 0)
    assert report.seconds > 0
    for _ in range(2):
        slot.now_ms += 30
        slot.backend.reached(slot.now_ms)
    assert slot.backend.cleanup_report().lag == pytest.approx(30 / 40)


def test_explicit_checks_never_make_cleanup_slower(slot: KeyedSlot) -> None:
    """Rounds that accesses pay for do not count for the schedule: when accesses end, an entry is still deleted when it would have been without them."""
    state = slot.backend.value_state(value_descriptor(ttl(lambda builder: builder.cleanup_incrementally(1000))))
    for _ in range(50):
        slot.now_ms += 1
        with slot.batch():
            for letter in "abcdefghijklmnopqrstuvwxyz":
                slot.key(letter)
                state.update(1)
        sweep(slot)
    slot.now_ms += 99
    for _ in range(44):
        slot.now_ms += 1
        with slot.batch():
            pass
        sweep(slot)
    assert len(slot.entries()) == 0
