"""Due timers against a plain set, while the function registers and deletes others, the batch spills, and the firing is left and begun again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.state import timer_front
from statefulspark.state.backend import BatchBudget
from statefulspark.state.store.heap_store import HeapStore
from statefulspark.state.timers import EVENT_TIMERS
from statefulspark.testing.keyed_state import KeyedSlot, key_group

KEYS = [f"{group}-{number}" for group in "abc" for number in range(15)]
"""Of three key groups."""
TIMES = 60


def ident(key: str) -> bytes:
    return key_group(key).to_bytes(2, "big") + key.encode()


Timer = tuple[int, int, str]
"""(time, key group, key)"""


class Firing:
    """One slot whose timers are known twice: in its backend, and in a set."""

    def __init__(self, folder: Path, random: Random, *, dirty_bytes: int, cache_bytes: int) -> None:
        budget = BatchBudget(cache_bytes=cache_bytes, dirty_bytes=dirty_bytes)
        self.slot = KeyedSlot(HeapStore(), folder, budget)
        self.random = random
        self.timers: set[Timer] = set()

    def change(self, registered: int, deleted: int) -> None:
        """Register timers at any time, past ones too, and delete some that there are."""
        timers = self.slot.backend.timers
        for _ in range(registered):
            key, time = self.random.choice(KEYS), self.random.randrange(TIMES)
            self.slot.key(key)
            timers.register(EVENT_TIMERS, time)
            self.timers.add((time, key_group(key), key))
        for timer in self.random.sample(sorted(self.timers), min(deleted, len(self.timers))):
            self.slot.key(timer[2])
            timers.delete(EVENT_TIMERS, timer[0])
            self.timers.remove(timer)

    def fire_together(self, up_to: int, *, most: int, busy: float) -> bool:
        """Fire timers, up to so many at once, and register and delete others that are not due, in lists. Returns True: none is left that is due."""
        timers = self.slot.backend.timers
        for times, idents in timers.due_together(EVENT_TIMERS, up_to, most):
            assert 1 <= len(times) <= most
            expected = sorted(self.timers)[: len(times)]
            assert [
                (time, int.from_bytes(ident[:2], "big"), ident[2:].decode()) for time, ident in zip(times, idents, strict=True)
            ] == expected
            assert times[-1] <= up_to
            self.timers.difference_update(expected)
            if self.random.random() < busy and up_to + 1 < TIMES:
                self.change_together(up_to + 1)
        return not self.timers or min(self.timers)[0] > up_to

    def change_together(self, not_before: int) -> None:
        """Delete some timers at or after a time, and register others."""
        queue = self.slot.backend.timers.queue(EVENT_TIMERS)
        later = [timer for timer in sorted(self.timers) if timer[0] >= not_before]
        deleted = self.random.sample(later, min(len(later), self.random.randrange(4)))
        queue.delete_all([time for time, _, _ in deleted], [ident(key) for _, _, key in deleted])
        self.timers.difference_update(deleted)
        keys = self.random.choices(KEYS, k=self.random.randrange(1, 4))
        times = [self.random.randrange(not_before, TIMES) for _ in keys]
        queue.register_all(times, list(map(ident, keys)))
        self.timers.update((time, key_group(key), key) for time, key in zip(times, keys, strict=True))

    def fire(self, up_to: int, *, most: int, busy: float) -> bool:
        """Fire timers, at most so many, and change others at some of them. Returns True if none is left that is due."""
        for _ in range(most):
            fired = 0
            for time, key, _ in self.slot.backend.timers.due(EVENT_TIMERS, up_to):
                expected = min(self.timers)
                assert (time, key_group(key), key) == expected
                assert time <= up_to
                self.timers.remove(expected)
                if self.random.random() < busy:
                    self.change(self.random.randrange(3), self.random.randrange(4))
                fired += 1
                if fired == most:
                    return False
            if not fired:
                break
        return not self.timers or min(self.timers)[0] > up_to


@pytest.fixture(autouse=True)
def few_timers_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fronts read few timers, so that they end at different times and the order across key groups counts."""
    monkeypatch.setattr(timer_front, "_AHEAD_TIMERS", 5)


@given(
    seed=st.integers(0, 1 << 32),
    batches=st.integers(2, 6),
    dirty_bytes=st.sampled_from([4_000, 20_000, 1 << 20]),
    cache_bytes=st.sampled_from([0, 1 << 20]),
    busy=st.sampled_from([0.0, 0.1, 0.6]),
    together=st.booleans(),
)
def test_due_timers_come_in_order_whatever_happens_meanwhile(
    seed: int, batches: int, dirty_bytes: int, cache_bytes: int, busy: float, together: bool
) -> None:
    """Also after a batch that was rolled back, and with a backend that knows no timer yet."""
    random = Random(seed)
    with TemporaryDirectory() as folder:
        firing = Firing(Path(folder), random, dirty_bytes=dirty_bytes, cache_bytes=cache_bytes)
        for batch in range(batches):
            before = set(firing.timers)
            firing.slot.begin(batch)
            firing.change(random.randrange(120), random.randrange(30))
            fire = firing.fire_together if together else firing.fire
            fire(random.randrange(TIMES), most=random.choice([3, 40, 1000]), busy=busy)
            firing.change(random.randrange(20), random.randrange(30))
            if random.random() < 0.25:
                firing.slot.backend.abort_batch()
                firing.timers = before
                firing.slot.begin(batch)
            first = min(firing.timers)[0] if firing.timers else None
            assert firing.slot.backend.timers.min_timestamp(EVENT_TIMERS) == first
            firing.slot.finish()
            if random.random() < 0.3:
                firing.slot.backend.apply_pending()
                firing.slot.backend.timers.read_ahead(random.randrange(TIMES), 0)
            elif random.random() < 0.3:
                firing.slot.backend.apply_pending()
                firing.slot.backend = firing.slot.new_backend()
                firing.slot.backend.batch = batch
        firing.slot.begin(batches)
        assert firing.fire(TIMES, most=100_000, busy=0.0)
        assert not firing.timers
        firing.slot.finish()
        firing.slot.backend.apply_pending()
        assert firing.slot.entries() == {}
