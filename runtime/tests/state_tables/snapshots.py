"""A savepoint with one state of text keys, whose key groups are those of Spark's hash, and the model of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from state_snapshots import UID, write_savepoint

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.key_hashes import key_group_of
from statefulspark.keygroups import slot_of
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo, store_key, timer_store_key
from statefulspark.state.types.types import TypeInformation, Types
from statefulspark.storage.open import open_store

GROUPS = 128


def info_of(
    name: str, type_: TypeInformation, *, kind: str = "value", state_id: int = 1, keys: tuple[TypeInformation, ...] = ()
) -> StateInfo:
    """The description of a state with text keys, or others."""
    key_types = [each.to_json() for each in keys or (Types.STRING(),)]
    return StateInfo(state_id=state_id, uid=UID, name=name, kind=kind, key_type=key_types, type=type_.to_json())


def hashed_groups(folder: Path, columns: list[tuple[str, str]], keys: list[Any], max_parallelism: int = GROUPS) -> dict[Any, int]:
    """Key group by key, as the product computes it."""
    url = write_savepoint(folder, [], [], columns=columns, parallelism=1, max_parallelism=max_parallelism)
    metadata = open_checkpoint(url, open_store).metadata
    groups = {}
    for key in keys:
        group = key_group_of(metadata, UID, key)
        assert group is not None
        groups[key] = group
    return groups


def counts_of_users(folder: Path, users: int, *, backend: str = "filesystem", parallelism: int = 2) -> tuple[str, dict[str, int]]:
    """A savepoint with the state ``count`` (LONG) and a timer for each user; its URL, and the slot of each user."""
    keys = [f"user-{number}" for number in range(users)]
    groups = hashed_groups(folder / "empty", [("user", "string")], keys)
    count = info_of("count", Types.LONG())
    timers = StateInfo(state_id=2, uid=UID, name="event-timers", kind="event-timers", key_type=count.key_type, type={})
    codec = KeyCodec([Types.STRING()])
    entries = []
    for number, key in enumerate(keys):
        data = codec.encode(key)
        entries.append((store_key(groups[key], 1, data), b"\1" + Types.LONG().encode(number)))
        entries.append((timer_store_key(groups[key], 2, number - 5, data), b""))
    url = write_savepoint(
        folder / "savepoint", [count, timers], entries, backend=backend, parallelism=parallelism, columns=[("user", "string")]
    )
    return url, {key: slot_of(group, parallelism, GROUPS) for key, group in groups.items()}
