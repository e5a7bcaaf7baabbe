"""Starts of attempts: what each driver resumed from."""

from __future__ import annotations

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.documents import decode_document
from statefulspark.checkpoint.formats.records import AttemptStart
from statefulspark.checkpoint.transfers import read_again
from statefulspark.storage.base import ObjectStore


def newest_start(store: ObjectStore) -> AttemptStart | None:
    """Returns the start of the newest attempt that got to write it, or None if there is none."""
    started = [attempt for attempt, is_start in _attempts(store) if is_start]
    return _read_start(store, max(started)) if started else None


def since(store: ObjectStore, attempt: int) -> int:
    """The newest attempt that inherited no records: none before it ran a batch that the lineage still needs."""
    started = sorted((number for number, is_start in _attempts(store) if is_start and number <= attempt), reverse=True)
    return next((number for number in started if not _read_start(store, number).records), started[-1] if started else attempt)


def _read_start(store: ObjectStore, attempt: int) -> AttemptStart:
    key = paths.attempt_start_key(attempt)
    path = paths.url_of(store.url, key)
    return read_again(lambda: decode_document(store.get(key), "attempt-start", AttemptStart, path=path))


def _attempts(store: ObjectStore) -> list[tuple[int, bool]]:
    return [found for info in store.list(paths.ATTEMPTS_PREFIX) if (found := paths.attempt_of(info.key)) is not None]
