"""Deletes keys from a checkpoint or savepoint, by writing a new savepoint without them (docs/state-tables.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state.operator.entries import is_operator_state
from statefulspark.state.tables.raw_keyed import RAW_KEYED
from statefulspark.state_tables.canonical.conversion import write_canonical
from statefulspark.state_tables.read.key_filter import KeyFilter
from statefulspark.state_tables.read.reading import encoded_keys

_SPARK_STATE: Final = "the state of Spark's own operators"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDeletion:
    """Result of a deletion of keys.

    Attributes:
        url: The new savepoint, which is canonical.
        deleted: Number of entries that it does not have, by name of the state, zero included: keys, map entries and timers. A list is one entry.
        not_found: Keys of which the uid had nothing.
        not_searched: What may hold data of a key and cannot be searched for it, because it has no keys: raw keyed state of the uid, operator
            and broadcast state of all uids, and the state of Spark's own operators.
    """

    url: str
    deleted: dict[str, int]
    not_found: tuple[Any, ...]
    not_searched: tuple[str, ...]


def delete_keys_of(
    origin: StoredCheckpoint,
    target_url: str,
    uid: str,
    keys: Collection[Any],
    *,
    open_store: OpenStore,
    progress: Callable[[str], None] = lambda _: None,
) -> KeyDeletion:
    """Write a savepoint without some keys of a uid; `statefulspark.state_tables.delete_keys` says the rest.

    Args:
        origin: A checkpoint or savepoint. It is only read.
        target_url: Folder in which the savepoint is made, under a new name.
        uid: The keyed step.
        keys: A tuple each for several key columns.
        open_store: Opens the store of a URL.
        progress: Called with the name of each part before it is written.
    """
    states = {info.state_id: info for info in keyed_states(origin, uid)}
    encoded = {number: encoded_keys(KeyCodec.from_json(info.key_type), keys) for number, info in states.items()}
    if not keys:
        raise InvalidInputError("there are none", field="keys", remedy="Name the keys to delete")
    key_filter = KeyFilter(states=states, keys={number: frozenset(each) for number, each in encoded.items()})
    written = write_canonical(origin, target_url, open_store=open_store, key_filter=key_filter, progress=progress)

    def is_found(index: int) -> bool:
        return any(each[index] in key_filter.found.get(number, ()) for number, each in encoded.items())

    return KeyDeletion(
        url=written.url,
        deleted={info.name: key_filter.left_out[number] for number, info in states.items()},
        not_found=tuple(key for index, key in enumerate(keys) if not is_found(index)),
        not_searched=tuple(_not_searched(origin, uid)),
    )


def keyed_states(origin: StoredCheckpoint, uid: str) -> list[StateInfo]:
    """Return the states of a uid whose entries have keys, timers included, by name.

    Raises:
        InvalidInputError: There is no such uid, or it has none; the text lists those that have some.
    """
    keyed = sorted((info for info in state_infos(origin) if _has_keys(info)), key=lambda info: info.name)
    if found := [info for info in keyed if info.uid == uid]:
        return found
    uids = ", ".join(sorted({info.uid for info in keyed})) or "none"
    raise InvalidInputError(f"{origin.url} has no state with keys of uid {uid!r}", field="uid", remedy=f"Use one of: {uids}.")


def _has_keys(info: StateInfo) -> bool:
    return not is_operator_state(info) and info.kind != RAW_KEYED


def _not_searched(origin: StoredCheckpoint, uid: str) -> Iterator[str]:
    """Name what may hold data of a key and has no keys to search by."""
    for info in sorted(state_infos(origin), key=lambda info: (info.uid, info.name)):
        if is_operator_state(info) or (info.kind == RAW_KEYED and info.uid == uid):
            yield f"{info.kind} {info.name!r} of uid {info.uid!r}"
    if origin.metadata.spark_state:
        yield _SPARK_STATE
