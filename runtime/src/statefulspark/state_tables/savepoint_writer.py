"""SavepointWriter: changes a savepoint by writing a new one. Flink's State Processor API has the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.errors import InvalidInputError
from statefulspark.state_tables.changes import Changes, State
from statefulspark.state_tables.rewriting import WrittenSavepoint, rewrite
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

_K = TypeVar("_K", str, State)


@dataclass(frozen=True, slots=True)
class SavepointWriter:
    """Collects changes and writes a savepoint with them. Each method returns a new writer.

    All names are those of the existing savepoint, and all changes apply together: two uids can swap their names, and a state of a renamed uid
    is named by the old uid.

    >>> writer = SavepointWriter.from_existing_savepoint("s3://bucket/savepoint-shop-1")
    >>> writer = writer.change_operator_identifier("orders", "carts").rename_state("orders", "cart", "content")
    >>> writer.write("s3://bucket/rewritten").url  # doctest: +SKIP
    's3://bucket/rewritten/savepoint-shop-1f2e3d4c5b6a'
    """

    _path: str
    _storage: StorageSettings | None = None
    _changes: Changes = field(default_factory=Changes)
    _max_parallelism: int | None = None

    @classmethod
    def from_existing_savepoint(cls, path: str, *, storage: StorageSettings | None = None) -> SavepointWriter:
        """Start with everything that a savepoint or checkpoint has.

        Args:
            path: URL or path of a checkpoint, a savepoint, or a job's folder for its newest complete checkpoint.
            storage: Settings of an S3-compatible store, for both places. Credentials default to those of the AWS tools.
        """
        return cls(path, storage)

    def change_operator_identifier(self, uid: str, new_uid: str) -> SavepointWriter:
        """Give a keyed step another uid.

        Raises:
            InvalidInputError: The uid has another new name already.
        """
        return self._with(replace(self._changes, uids=_added(self._changes.uids, uid, new_uid, "uid")))

    def rename_state(self, uid: str, state: str, new_name: str) -> SavepointWriter:
        """Give a state another name. Timers, raw state and the states of windows and rolling aggregations keep theirs.

        Raises:
            InvalidInputError: The state has another new name already.
        """
        return self._with(replace(self._changes, states=_added(self._changes.states, (uid, state), new_name, "state")))

    def remove_operator(self, uid: str) -> SavepointWriter:
        """Leave out a keyed step, with its states, timers and watermarks. The positions of its sources stay."""
        return self._with(replace(self._changes, removed_uids=self._changes.removed_uids | {uid}))

    def remove_state(self, uid: str, state: str) -> SavepointWriter:
        """Leave out a state; ``event-timers`` and ``processing-timers`` are the timers of a step."""
        return self._with(replace(self._changes, removed_states=self._changes.removed_states | {(uid, state)}))

    def with_max_parallelism(self, max_parallelism: int) -> SavepointWriter:
        """Move every key to the key group that it has among so many, 1 to 32,768. A job that starts from the savepoint has so many."""
        return replace(self, _max_parallelism=max_parallelism)

    def write(self, target: str) -> WrittenSavepoint:
        """Write the savepoint, which is canonical. The existing one is only read.

        The local disk needs space for one slot's files three times. With another maximum parallelism, also for all entries twice, uncompressed.

        Args:
            target: Folder in which the savepoint is made, under a new name.

        Raises:
            InvalidInputError: There is no such checkpoint, or a change cannot be made: the message says which. Nothing was written.
            CorruptDataError: A file or an entry of the existing savepoint is damaged; the message names it. Nothing was published.
            UnavailableError: Storage did not answer, or the local disk is full; nothing was published.
        """
        opener = partial(open_store, settings=self._storage)
        origin = open_checkpoint(self._path, opener)
        return rewrite(origin, target, self._changes, max_parallelism=self._max_parallelism, open_store=opener)

    def _with(self, changes: Changes) -> SavepointWriter:
        return replace(self, _changes=changes)


def _added(known: Mapping[_K, str], key: _K, new: str, field: str) -> dict[_K, str]:
    if known.get(key, new) != new:
        raise InvalidInputError(f"{key!r} has two new names", field=field, remedy="Give it one")
    return {**known, key: new}
