"""What the stored entries of session windows say, in whichever form the sessions of a key are."""

from __future__ import annotations

from typing import Any

from statefulspark.process.windows.windows import TimeWindowSerializer
from statefulspark.state.encoding.layout import split_store_key, split_timer_store_key
from statefulspark.state.types.base import type_from_json
from statefulspark.testing.process_harness import HarnessSnapshot

Sessions = dict[bytes, list[tuple[int, int, Any]]]
"""By key: start, end and contents of each session, in order."""
_WINDOW = TimeWindowSerializer()


def sessions_of(snapshot: HarnessSnapshot) -> tuple[Sessions, Sessions]:
    """Return the joint sessions and the separate ones; the values must not have evolved."""
    states = {state.state_id: state for state in snapshot.states}
    joint: Sessions = {}
    separate: Sessions = {}
    contents: dict[tuple[bytes, bytes], Any] = {}
    windows: dict[bytes, bytes] = {}
    for store_key, value in snapshot.entries:
        state = states[int.from_bytes(store_key[2:4], "big")]
        if state.kind.endswith("timers"):
            continue
        _, _, key, user_key = split_store_key(store_key)
        if state.name.startswith("_sessions("):
            joint[key] = type_from_json(state.type).decode(value[1:])
        elif state.name.startswith("_merging_windows("):
            windows[key] = value[1:]
        elif state.name.startswith("_window("):
            contents[key, user_key] = type_from_json(state.type["value"]).decode(value[1:])
    for key, pairs in windows.items():
        separate[key] = []
        for at in range(0, len(pairs), 32):
            window = _WINDOW.deserialize(pairs[at : at + 16])
            separate[key].append((window.start, window.end, contents.pop((key, pairs[at + 16 : at + 32]))))
    assert not contents
    assert not joint.keys() & separate.keys()
    return joint, separate


def timers_of(snapshot: HarnessSnapshot) -> list[tuple[int, bytes]]:
    """Return time and key of each timer."""
    kinds = {state.state_id: state.kind for state in snapshot.states}
    timers = [split_timer_store_key(key) for key, _ in snapshot.entries if kinds[int.from_bytes(key[2:4], "big")].endswith("timers")]
    return sorted((timer.timestamp_ms, timer.key) for timer in timers)
