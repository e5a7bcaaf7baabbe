"""What functions do with states and timers, as rules of the state machine."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from statefulspark.state.api.ttl import UpdateType
from statefulspark.state.encoding.idents import key_group_of_ident
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.testing.keyed_state import key_group

from .batch_machine import KEYS, NUMBERS, OBJECTS, TIMES, TTL_MS, USER_KEYS, BatchMachine


class StateRules(BatchMachine):
    """Work on the states of the current key."""

    @precondition(lambda self: self.running is not None)
    @rule(keys=st.lists(KEYS))
    def prefetch(self, keys: list[str]) -> None:
        self.slot.backend.prefetch(self.slot.backend.idents.of_all([(key_group(key), key.encode()) for key in keys]))

    @rule(key=KEYS, number=st.none() | NUMBERS)
    def update_count(self, key: str, number: int | None) -> None:
        self.on_key(key)
        assert self.count.value() == self.model["count"].get(self.key)
        self.count.update(number)
        self.put("count", number)

    @rule(key=KEYS, value=st.none() | OBJECTS)
    def update_object(self, key: str, value: Any) -> None:
        self.on_key(key)
        self.object.update(value)
        self.put("object", copy.deepcopy(value))
        if isinstance(value, list):
            value.append(9)

    @rule(key=KEYS)
    def change_read_object(self, key: str) -> None:
        self.on_key(key)
        value = self.object.value()
        assert value == self.model["object"].get(self.key)
        if isinstance(value, list):
            value.append(9)

    @rule(key=KEYS, text=st.text(max_size=3))
    def add_to_sum(self, key: str, text: str) -> None:
        self.on_key(key)
        self.sum.add(text)
        self.put("sum", self.model["sum"].get(self.key, "") + text)

    @rule(key=KEYS, state=st.sampled_from(["count", "object", "sum", "list", "map", "fading", "fading_list", "fading_map"]))
    def clear(self, key: str, state: str) -> None:
        self.on_key(key)
        getattr(self, state).clear()
        self.model[state].pop(self.key, None)

    @rule(key=KEYS, elements=st.lists(st.lists(NUMBERS, max_size=2), max_size=3), replace=st.booleans())
    def change_list(self, key: str, elements: list[list[int]], replace: bool) -> None:
        self.on_key(key)
        if replace:
            self.list.update(elements)
        else:
            self.list.add_all(elements)
        before = [] if replace else self.model["list"].get(self.key, [])
        self.put("list", [*before, *copy.deepcopy(elements)] or None)

    @rule(key=KEYS, user_key=USER_KEYS, value=st.none() | OBJECTS)
    def put_into_map(self, key: str, user_key: str, value: Any) -> None:
        self.on_key(key)
        self.map.put(user_key, value)
        self.model["map"].setdefault(self.key, {})[user_key] = copy.deepcopy(value)

    @rule(key=KEYS, user_key=USER_KEYS)
    def remove_from_map(self, key: str, user_key: str) -> None:
        self.on_key(key)
        mine = self.model["map"].get(self.key, {})
        assert self.map.get(user_key) == mine.get(user_key)
        assert self.map.contains(user_key) == (user_key in mine)
        self.map.remove(user_key)
        mine.pop(user_key, None)

    @rule(key=KEYS, added=USER_KEYS, dropped=USER_KEYS, all_go=st.booleans())
    def change_map_while_walking(self, key: str, added: str, dropped: str, all_go: bool) -> None:
        """A walk sees no entry that is gone and ends, while entries are added and removed."""
        self.on_key(key)
        mine = self.model["map"].setdefault(self.key, {})
        for number, user_key in enumerate(self.map.keys()):
            assert number < 10
            assert user_key in mine
            if all_go:
                self.map.remove(user_key)
                del mine[user_key]
            if number == 0:
                self.map.put(added, 1)
                mine[added] = 1
                self.map.remove(dropped)
                mine.pop(dropped, None)

    # Reads now and then only, because reading moves things into caches

    @rule(key=KEYS)
    def reads_agree(self, key: str) -> None:
        self.on_key(key)
        assert self.count.value() == self.model["count"].get(self.key)
        assert self.object.value() == self.model["object"].get(self.key)
        assert self.sum.get() == self.model["sum"].get(self.key)
        assert list(self.list.get()) == self.model["list"].get(self.key, [])
        mine = self.model["map"].get(self.key, {})
        assert list(self.map.items()) == sorted(mine.items(), key=lambda item: item[0])
        assert self.map.is_empty() == (not mine)
        assert [self.map.get(user_key) for user_key in ("", "x", "y")] == [mine.get(user_key) for user_key in ("", "x", "y")]

    @rule()
    def earliest_timers_agree(self) -> None:
        model = self.running or self.finished or self.committed
        for kind in TIMER_KINDS:
            assert self.slot.backend.timers.min_timestamp(kind) == min((timer[0] for timer in model[kind]), default=None)


class ExpiryRules(BatchMachine):
    """Work on states that expire; the model keeps (value, expiry)."""

    def expiry(self) -> int:
        return self.slot.now_ms + TTL_MS

    def living(self, pairs: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """What a read of model pairs sees and leaves."""
        living = [(value, expiry) for value, expiry in pairs if expiry > self.slot.now_ms]
        return [(value, self.expiry()) for value, _ in living] if self.ttl.get_update_type() is UpdateType.OnReadAndWrite else living

    @rule(key=KEYS, number=NUMBERS)
    def update_fading(self, key: str, number: int) -> None:
        self.on_key(key)
        self.fading.update(number)
        self.model["fading"][self.key] = (number, self.expiry())

    @rule(key=KEYS)
    def read_fading(self, key: str) -> None:
        self.on_key(key)
        pairs = self.living([pair] if (pair := self.model["fading"].get(self.key)) else [])
        assert self.fading.value() == (pairs[0][0] if pairs else None)
        self.put("fading", pairs[0] if pairs else None)

    @rule(key=KEYS, text=st.text(max_size=2))
    def add_to_fading_list(self, key: str, text: str) -> None:
        self.on_key(key)
        self.fading_list.add(text)
        self.model["fading_list"][self.key] = [*self.model["fading_list"].get(self.key, []), (text, self.expiry())]

    @rule(key=KEYS)
    def read_fading_list(self, key: str) -> None:
        self.on_key(key)
        pairs = self.living(self.model["fading_list"].get(self.key, []))
        assert list(self.fading_list.get()) == [value for value, _ in pairs]
        self.put("fading_list", pairs or None)

    @rule(key=KEYS, user_key=USER_KEYS, value=st.none() | st.lists(NUMBERS, max_size=2))
    def put_into_fading_map(self, key: str, user_key: str, value: list[int] | None) -> None:
        self.on_key(key)
        self.fading_map.put(user_key, value)
        self.model["fading_map"].setdefault(self.key, {})[user_key] = (copy.copy(value), self.expiry())

    @rule(key=KEYS, user_key=USER_KEYS)
    def read_from_fading_map(self, key: str, user_key: str) -> None:
        self.on_key(key)
        mine = self.model["fading_map"].setdefault(self.key, {})
        pairs = self.living([mine.pop(user_key)] if user_key in mine else [])
        assert self.fading_map.contains(user_key) == bool(pairs)
        assert self.fading_map.get(user_key) == (pairs[0][0] if pairs else None)
        if pairs:
            mine[user_key] = pairs[0]

    @rule(key=KEYS)
    def read_fading_map(self, key: str) -> None:
        self.on_key(key)
        mine = self.model["fading_map"].setdefault(self.key, {})
        for user_key in list(mine):
            pairs = self.living([mine.pop(user_key)])
            if pairs:
                mine[user_key] = pairs[0]
        assert dict(self.fading_map.items()) == {user_key: value for user_key, (value, _) in mine.items()}


class TimerRules(BatchMachine):
    """Work on timers."""

    @precondition(lambda self: self.running is not None)
    @rule(kind=st.sampled_from(TIMER_KINDS), pick=st.integers(0, 3))
    def delete_existing_timer(self, kind: str, pick: int) -> None:
        existing = sorted(self.model[kind])
        if existing:
            time, _, key = existing[pick % len(existing)]
            self.delete_timer(key, kind, time)

    @rule(key=KEYS, kind=st.sampled_from(TIMER_KINDS), time=TIMES)
    def register_timer(self, key: str, kind: str, time: int) -> None:
        self.on_key(key)
        self.slot.backend.timers.register(kind, time)
        self.model[kind].add((time, key_group(self.key), self.key))

    @rule(key=KEYS, kind=st.sampled_from(TIMER_KINDS), time=TIMES)
    def delete_timer(self, key: str, kind: str, time: int) -> None:
        self.on_key(key)
        self.slot.backend.timers.delete(kind, time)
        self.model[kind].discard((time, key_group(self.key), self.key))

    @precondition(lambda self: self.running is not None)
    @rule(kind=st.sampled_from(TIMER_KINDS), up_to=TIMES, again=st.none() | TIMES, drop=st.none() | TIMES)
    def fire(self, kind: str, up_to: int, again: int | None, drop: int | None) -> None:
        """Each due timer fires once in order, while its first firing registers and deletes others of its key."""
        expected = self.model[kind]
        for number, (timestamp, key, ident) in enumerate(self.slot.backend.timers.due(kind, up_to)):
            due = min(expected, key=lambda timer: (timer[0], timer[1], timer[2].encode()))
            assert (timestamp, key_group_of_ident(ident), key) == due
            assert ident == self.slot.backend.idents.of(due[1], key.encode())
            expected.discard(due)
            if number == 0:
                if again is not None:
                    self.register_timer(key, kind, again)
                if drop is not None:
                    self.delete_timer(key, kind, drop)
        assert not [timer for timer in expected if timer[0] <= up_to]
