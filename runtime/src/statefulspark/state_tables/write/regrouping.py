"""Moves the entries of a checkpoint to the key groups of another maximum parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import NoReturn, Self

from statefulspark.checkpoint.catalog import StoredCheckpoint
from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, OperatorFile, SlotState
from statefulspark.checkpoint.inspect.key_hashes import key_hash
from statefulspark.checkpoint.inspect.reader import state_infos
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.keygroups import key_group_of_hash, ranges
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import (
    StateInfo,
    group_prefix,
    key_group_range_bounds,
    split_store_key,
    split_timer_store_key,
    state_id_of,
)
from statefulspark.state.operator.entries import is_operator_state
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.tables.raw_keyed import RAW_KEYED
from statefulspark.state.timers import TIMER_KINDS
from statefulspark.state_tables.write.changes import check_max_parallelism
from statefulspark.state_tables.write.contents import StoredContents
from statefulspark.state_tables.write.sorted_entries import SlotBySlot, SortedEntries, sorted_entries, written_entries


def regrouped_metadata(metadata: CheckpointMetadata, max_parallelism: int) -> CheckpointMetadata:
    """Return the metadata with slots for another number of key groups; their entries are those of `RegroupedContents`.

    Raises:
        InvalidInputError: The number is out of bounds, or operator state of more slots does not fit.
    """
    check_max_parallelism(max_parallelism)
    parallelism = min(metadata.parallelism, max_parallelism)
    if any(file.slot >= parallelism for file in metadata.operator_state):
        raise InvalidInputError(
            f"{metadata.parallelism} slots have operator state, and {max_parallelism} key groups allow {parallelism} slots",
            field="max_parallelism",
            remedy=f"Choose {metadata.parallelism} or more, or take the savepoint with fewer slots",
        )
    batches: dict[str, int] = {}
    for slot in metadata.slots:
        for uid, batch in slot.operator_batches.items():
            batches[uid] = min(batch, batches.get(uid, batch))
    slots = tuple(
        SlotState(slot=number, first=groups.first, last=groups.last, backend="memory", operator_batches=batches)
        for number, groups in enumerate(ranges(parallelism, max_parallelism))
    )
    return metadata.model_copy(update={"max_parallelism": max_parallelism, "parallelism": parallelism, "slots": slots})


@dataclass(slots=True)
class _KeyGroups:
    """The new key group of each key of one state.

    Attributes:
        info: The state.
        codec: Of its keys.
        hash_of: Spark's hash of a key, None if it cannot be computed here.
        now: Number of key groups of the checkpoint.
        wanted: That of the new savepoint.
    """

    info: StateInfo
    codec: KeyCodec
    hash_of: Callable[[object], int | None]
    now: int
    wanted: int
    _last: tuple[bytes, int] | None = None
    """Entries of a map and segments of a list follow each other."""

    def regrouped(self, stored: bytes) -> bytes:
        """Return the store key of an entry or timer with its new key group.

        Raises:
            InvalidInputError: The key group does not follow from the key; the message names the uid.
            CorruptDataError: The store key is damaged.
        """
        parts = split_timer_store_key(stored) if self.info.kind in TIMER_KINDS else split_store_key(stored)
        if self._last is None or self._last[0] != parts.key:
            key_hash_ = self.hash_of(self.codec.decode(parts.key))
            if key_hash_ is None or key_group_of_hash(key_hash_, self.now) != parts.key_group:
                raise InvalidInputError(
                    f"the key groups of state {self.info.name!r} of uid {self.info.uid!r} do not follow from its keys and what the checkpoint "
                    "says of their hash",
                    field="max_parallelism",
                    remedy="Take a savepoint with this release, or remove the uid",
                )
            self._last = parts.key, key_group_of_hash(key_hash_, self.wanted)
        return group_prefix(self._last[1]) + stored[2:]


class RegroupedContents:
    """The contents of a checkpoint with other key groups; `Contents` says what the methods do. A context manager, which deletes its files.

    All entries are sorted before the first slot is opened, in bounded memory. The local disk needs space for them twice, uncompressed.

    Args:
        origin: The checkpoint.
        contents: What it holds.
        max_parallelism: Number of key groups.
    """

    def __init__(self, origin: StoredCheckpoint, contents: StoredContents, max_parallelism: int) -> None:
        self._origin = origin
        self._contents = contents
        infos = [info for info in state_infos(origin) if not is_operator_state(info)]
        self._raw = {info.state_id: info for info in infos if info.kind == RAW_KEYED}
        self._states = {info.state_id: _groups_of(info, origin.metadata, max_parallelism) for info in infos if info.kind != RAW_KEYED}
        self._entries: SlotBySlot | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @contextmanager
    def opened(self, slot: SlotState) -> Iterator[StoredEntries]:
        if self._entries is None:
            self._entries = SlotBySlot(iter(self._regrouped()))
        with written_entries(self._entries.of(slot)) as store:
            yield store

    def changed_operator_file(self, file: OperatorFile) -> bytes | None:
        return self._contents.changed_operator_file(file)

    def _regrouped(self) -> SortedEntries:
        found = self._stack.enter_context(sorted_entries())
        for slot in self._origin.metadata.slots:
            with self._contents.opened(slot) as store:
                for key, value in store.scan(*key_group_range_bounds(slot.first, slot.last)):
                    if (groups := self._states.get(state_id_of(key))) is None:
                        _refuse_unmoved(state_id_of(key), self._raw, self._origin)
                    found.add(groups.regrouped(key), value)
        return found


def _groups_of(info: StateInfo, metadata: CheckpointMetadata, max_parallelism: int) -> _KeyGroups:
    step = metadata.pipeline.step(info.uid) if metadata.pipeline is not None else None
    hash_of = partial(key_hash, step) if step is not None else _no_hash
    return _KeyGroups(info, KeyCodec.from_json(info.key_type), hash_of, metadata.max_parallelism, max_parallelism)


def _no_hash(key: object) -> None:  # noqa: ARG001  of a step whose key the checkpoint does not describe
    return None


def _refuse_unmoved(state_id: int, raw: Mapping[int, StateInfo], origin: StoredCheckpoint) -> NoReturn:
    """Raise for an entry that has no key."""
    if (info := raw.get(state_id)) is not None:
        raise InvalidInputError(
            f"uid {info.uid!r} has raw keyed state, whose streams belong to key groups and not to keys",
            field="max_parallelism",
            remedy=f"Remove its state {info.name!r}, or keep the number of key groups",
        )
    raise CorruptDataError("it has an entry of no state", path=origin.url)
