"""Reads the states in a checkpoint and their entries, like Flink's State Processor API.

Slots are downloaded one after the other into a temporary folder, verified, opened and deleted again. The checkpoint is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint, open_checkpoint
from statefulspark.checkpoint.formats.metadata import SlotState
from statefulspark.checkpoint.inspect.decoding import BroadcastDecoder, EntryDecoder, StateEntry, element_decoder
from statefulspark.checkpoint.inspect.key_hashes import key_group_of
from statefulspark.checkpoint.restore.merged_states import MergedStates
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.checkpoint.restore.slot_files import fetch_slot
from statefulspark.errors import InvalidInputError
from statefulspark.state.encoding.layout import StateInfo, key_group_range_bounds, prefix_end, state_id_of, state_range, store_key
from statefulspark.state.encoding.segments import is_segment
from statefulspark.state.operator.entries import OperatorEntry, is_broadcast, is_operator_state
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state.tables.raw_keyed import RAW_KEYED, is_raw_header
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.storage.local.working_folder import open_scratch_folder
from statefulspark.storage.open import open_store as open_url

OpenKind = Callable[[str, Path], StoredEntries]
"""Opens the entries of a kind of store in a folder that holds a snapshot's files."""

_THREADS = 8
_LOOKUP_KEYS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """One state and how much it holds."""

    info: StateInfo
    entries: int
    """Stored entries: keys, map entries, timers, streams of raw keyed state, or elements of operator state. A list is one entry, also a long one.
    Broadcast state counts once, although every slot has a copy."""
    size_bytes: int
    """Bytes of their keys and values, before compression."""


def state_sizes(url: str, *, open_store: OpenStore = open_url, open_kind: OpenKind = open_snapshot) -> list[StateSize]:
    """Count the entries of every state of a checkpoint or savepoint, by uid and name.

    Args:
        url: A checkpoint's, savepoint's or job's folder; of a job, its newest complete checkpoint.
        open_store: Opens the store of a URL; replace it to give storage settings.
        open_kind: Opens a slot's store.

    Raises:
        InvalidInputError: There is no checkpoint.
        CorruptDataError: A file is damaged; run `statefulspark verify` for all of them.
        UnavailableError: Storage did not answer.
    """
    checkpoint = open_checkpoint(url, open_store)
    infos = state_infos(checkpoint)
    counts = {info.state_id: [0, 0] for info in infos}
    raw = {info.state_id for info in infos if info.kind == RAW_KEYED}
    for slot in checkpoint.metadata.slots:
        with opened_slot(checkpoint, slot, open_kind) as store:
            for key, value in store.scan(*key_group_range_bounds(slot.first, slot.last)):
                state_id = state_id_of(key)
                count = counts.setdefault(state_id, [0, 0])
                count[0] += is_raw_header(key) if state_id in raw else not is_segment(value)
                count[1] += len(key) + len(value)
    copied = {info.state_id for info in infos if is_broadcast(info)}
    first = min((file.slot for file in checkpoint.metadata.operator_state), default=0)
    for entry in _operator_entries(checkpoint):
        if entry.state_id in copied and entry.slot != first:
            continue
        count = counts.setdefault(entry.state_id, [0, 0])
        count[0] += len(entry.items)
        count[1] += entry.size_bytes
    sizes = [StateSize(info=info, entries=counts[info.state_id][0], size_bytes=counts[info.state_id][1]) for info in infos]
    return sorted(sizes, key=lambda size: (size.info.uid, size.info.name))


def read_state(
    url: str,
    uid: str,
    state: str,
    *,
    key: Any = None,
    unpickle: bool = False,
    open_store: OpenStore = open_url,
    open_kind: OpenKind = open_snapshot,
) -> Generator[StateEntry, None, None]:
    """Iterate over the entries of one state, in order of key group and key bytes; timers in order of time within a key group.

    Operator state has no keys: its entries are the elements of its lists, in order of the slots. Of broadcast state, the copy of one slot is read:
    its entries have map keys. Of raw state, the bytes are the function's own:
    an entry per stream or partition tells its length.

    Close the iterator (``contextlib.closing``) when you do not exhaust it: a downloaded slot is kept in a temporary folder until then.

    >>> for entry in read_state("s3://bucket/checkpoints/flights/chk-7", "turnaround", "last-leg"):  # doctest: +SKIP
    ...     print(entry.key, entry.value)

    Args:
        url: A checkpoint's, savepoint's or job's folder; of a job, its newest complete checkpoint.
        uid: The keyed step.
        state: Name of the state; ``event-timers`` and ``processing-timers`` are the step's timers.
        key: Only the entries of this key; a tuple for several key columns.
        unpickle: Also decode pickled values, which runs code that the bytes name: only for checkpoints you trust.
        open_store: Opens the store of a URL; replace it to give storage settings.
        open_kind: Opens a slot's store.

    Raises:
        InvalidInputError: There is no such checkpoint, state or kind of key.
        CorruptDataError: A file is damaged.
        UnavailableError: Storage did not answer.
    """
    checkpoint = open_checkpoint(url, open_store)
    info = find_state(checkpoint, uid, state)
    if is_operator_state(info):
        if key is not None:
            raise InvalidInputError(f"the operator state {state!r} has no keys", field="key", remedy="Read it without a key.")
        return (_broadcast if is_broadcast(info) else _elements)(checkpoint, info, unpickle=unpickle)
    if info.kind == RAW_KEYED and key is not None:
        raise InvalidInputError("raw keyed state has a stream per key group and no keys", field="key", remedy="Read it without a key.")
    decoder = EntryDecoder(info, unpickle=unpickle)
    if key is None:
        return _entries(checkpoint, decoder, None, None, open_kind)
    wanted = decoder.encode_key(key)
    # Encoded and decoded, a key is what the hash was taken of: an int for an index of numpy's, say.
    key_group = key_group_of(checkpoint.metadata, uid, decoder.decode_key(wanted))
    return _entries(checkpoint, decoder, wanted, key_group, open_kind)


def state_infos(checkpoint: StoredCheckpoint) -> list[StateInfo]:
    """States of a checkpoint by id.

    Raises:
        CorruptDataError: Descriptions contradict each other, or are of another version.
    """
    merged = MergedStates()
    merged.add(checkpoint.metadata.states, where=checkpoint.url)
    return [StateInfo.from_json(state) for state in merged.states]


def find_state(checkpoint: StoredCheckpoint, uid: str, state: str) -> StateInfo:
    """The description of one state.

    Raises:
        InvalidInputError: There is none of that name; the text lists what there is.
    """
    infos = state_infos(checkpoint)
    for info in infos:
        if (info.uid, info.name) == (uid, state):
            return info
    uids = sorted({info.uid for info in infos})
    if uid not in uids:
        raise InvalidInputError(f"{checkpoint.url} has no uid {uid!r}", field="uid", remedy=f"Use one of: {', '.join(uids) or 'none'}.")
    names = ", ".join(sorted(info.name for info in infos if info.uid == uid))
    raise InvalidInputError(f"uid {uid!r} has no state {state!r}", field="state", remedy=f"Use one of: {names}.")


@contextmanager
def opened_slot(checkpoint: StoredCheckpoint, slot: SlotState, open_kind: OpenKind) -> Iterator[StoredEntries]:
    """Download, verify and open the store of one slot; deletes it afterwards.

    Raises:
        CorruptDataError: A file is damaged or missing.
        UnavailableError: Storage did not answer.
    """
    with closing(open_scratch_folder()) as scratch:
        fetch_slot(checkpoint, slot, scratch.path / "store", _THREADS)
        with closing(open_kind(slot.backend, scratch.path / "store")) as store:
            yield store


def _operator_entries(checkpoint: StoredCheckpoint) -> Iterator[OperatorEntry]:
    for file in checkpoint.metadata.operator_state:
        yield from read_operator_file(checkpoint, file)


def _elements(checkpoint: StoredCheckpoint, info: StateInfo, *, unpickle: bool) -> Generator[StateEntry, None, None]:
    decode = element_decoder(info, unpickle=unpickle)
    for entry in _operator_entries(checkpoint):
        if entry.state_id == info.state_id:
            for element in entry.elements(where=checkpoint.url):
                yield StateEntry(slot=entry.slot, value=decode(element))


def _broadcast(checkpoint: StoredCheckpoint, info: StateInfo, *, unpickle: bool) -> Generator[StateEntry, None, None]:
    """Entries of the copy of the first slot; `verify` checks that the others are equal."""
    decoder = BroadcastDecoder(info, unpickle=unpickle)
    for file in checkpoint.metadata.operator_state[:1]:
        for entry in read_operator_file(checkpoint, file):
            if entry.state_id == info.state_id:
                for key, value in entry.items:
                    if value is not None:
                        yield decoder.decode(key, value)


def _entries(
    checkpoint: StoredCheckpoint, decoder: EntryDecoder, wanted: bytes | None, key_group: int | None, open_kind: OpenKind
) -> Generator[StateEntry, None, None]:
    """Entries of a state; of the key ``wanted`` if it is not None, which is in ``key_group`` if that is known."""
    info = decoder.info
    keys = None if wanted is None else (wanted,)
    for slot in checkpoint.metadata.slots:
        if key_group is not None and key_group not in slot.key_groups:
            continue
        key_groups = range(slot.first, slot.last + 1) if key_group is None else (key_group,)
        with opened_slot(checkpoint, slot, open_kind) as store:
            for key, value in stored_entries(store, info, key_groups, keys):
                if (info.kind == "list" and is_segment(value)) or (info.kind == RAW_KEYED and not is_raw_header(key)):
                    continue
                if (entry := decoder.decode(key, value, store.scan)) is not None:
                    yield entry


def stored_entries(
    store: StoredEntries, info: StateInfo, key_groups: Sequence[int], wanted: Collection[bytes] | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Return the stored entries of one state, in the order of the key groups.

    Args:
        store: Of a slot.
        info: A state with keys, or raw keyed state.
        key_groups: Of the slot.
        wanted: The bytes of keys, if only their entries are wanted.
    """
    if wanted is None:
        # Without a generator of its own, which each entry would pass through.
        return chain.from_iterable(store.scan(*state_range(key_group, info.state_id)) for key_group in key_groups)
    return _wanted_entries(store, info, key_groups, wanted)


def _wanted_entries(
    store: StoredEntries, info: StateInfo, key_groups: Sequence[int], wanted: Collection[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    if info.kind in TIMER_KINDS:
        for key_group in key_groups:
            for key, value in store.scan(*state_range(key_group, info.state_id)):
                # A timer's store key is 12 bytes of key group, state and time, then the key.
                if key[12:] in wanted:
                    yield key, value
    elif info.kind == "map":
        for key_group, key in product(key_groups, wanted):
            prefix = store_key(key_group, info.state_id, key)
            yield from store.scan(prefix, prefix_end(prefix))
    else:
        keys = (store_key(key_group, info.state_id, key) for key_group, key in product(key_groups, wanted))
        while piece := list(islice(keys, _LOOKUP_KEYS)):
            for key, found in zip(piece, store.get_many(piece), strict=True):
                if found is not None:
                    yield key, found
