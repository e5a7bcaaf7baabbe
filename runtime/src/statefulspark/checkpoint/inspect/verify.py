"""Verifies, file by file, that a checkpoint could be restored, without restoring it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from statefulspark.checkpoint.catalog import OpenStore, StoredCheckpoint, checkpoint_before, open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.bundle import decode_bundle
from statefulspark.checkpoint.formats.metadata import FileRef, OperatorFile, SlotState, TableFile
from statefulspark.checkpoint.formats.packs import check_pack
from statefulspark.checkpoint.inspect.reader import OpenKind, state_infos
from statefulspark.checkpoint.restore.operator_state import read_operator_file
from statefulspark.checkpoint.restore.slot_files import check_downloaded, check_has_files, write_inline
from statefulspark.checkpoint.transfers import download_verified, in_parallel
from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.layout import StateInfo, state_id_of
from statefulspark.state.operator.entries import OperatorEntry, is_broadcast, is_operator_state
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.storage.local.working_folder import open_scratch_folder
from statefulspark.storage.open import open_store as open_url

_THREADS = 8
_AFTER_ALL_KEYS = b"\xff\xff\xff"
"""Store keys begin with a key group, which is below 32,768."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """Result of a verification."""

    url: str
    """The verified checkpoint."""
    problems: tuple[str, ...]
    """One sentence per damaged file or entry; empty when the checkpoint is sound."""
    files: int
    """Files that were read and compared."""
    size_bytes: int
    """Their bytes, and those of entries within ``_metadata``."""
    entries: int
    """Entries of stores whose place was checked."""
    alternative: str | None
    """The newest older checkpoint of the same job whose files are all there; None when there is none or none is needed."""

    @property
    def sound(self) -> bool:
        """True if nothing is damaged."""
        return not self.problems


def verify(
    url: str, *, open_store: OpenStore = open_url, open_kind: OpenKind = open_snapshot, progress: Callable[[str], None] = lambda _: None
) -> VerifyReport:
    """Read every file of a checkpoint, open every slot's store and check every key.

    Args:
        url: A checkpoint's, savepoint's or job's folder; of a job, its newest complete checkpoint.
        open_store: Opens the store of a URL; replace it to give storage settings.
        open_kind: Opens a slot's store.
        progress: Called with the name of each object before it is checked.

    Raises:
        InvalidInputError: There is no checkpoint.
        UnavailableError: Storage did not answer.
    """
    try:
        checkpoint = open_checkpoint(url, open_store)
    except CorruptDataError as problem:
        return _report(url, [str(problem)], checkpoint_before(url, open_store), files=0, size_bytes=0, entries=0)
    problems: list[str] = []
    entries = 0
    infos = _known_states(checkpoint, problems)
    known = {info.state_id for info in infos if not is_operator_state(info)}
    for slot in checkpoint.metadata.slots:
        progress(f"slot {slot.slot} of {checkpoint.metadata.parallelism}")
        with closing(open_scratch_folder()) as scratch:
            damaged = _download(checkpoint, slot.files, scratch.path)
            try:
                check_has_files(checkpoint, slot)
                write_inline(checkpoint, slot, scratch.path)
            except CorruptDataError as problem:
                damaged.append(f"slot {slot.slot}: {problem}")
            problems += damaged
            if not damaged:
                check_downloaded(slot, scratch.path)
                entries += _check_entries(slot, scratch.path, known, open_kind, problems)
    if (location := checkpoint.metadata.spark_location) is not None:
        problems += _damaged_bundle(checkpoint, location)
    for pack in checkpoint.metadata.spark_state:
        problems += _damaged_pack(checkpoint, pack)
    entries += _check_operator_files(checkpoint, infos, progress, problems)
    for table in checkpoint.metadata.tables:
        progress(f"table of state {table.state!r} of uid {table.uid!r}")
        problems += _damaged_table(checkpoint, table)
    files = list(checkpoint.metadata.files())
    alternative = checkpoint_before(checkpoint.url, open_store) if problems else None
    size_bytes = sum(file.size_bytes for file in files) + checkpoint.metadata.inline_bytes
    return _report(checkpoint.url, problems, alternative, files=len(files), size_bytes=size_bytes, entries=entries)


def _report(url: str, problems: list[str], alternative: str | None, *, files: int, size_bytes: int, entries: int) -> VerifyReport:
    return VerifyReport(url=url, problems=tuple(problems), files=files, size_bytes=size_bytes, entries=entries, alternative=alternative)


def _known_states(checkpoint: StoredCheckpoint, problems: list[str]) -> list[StateInfo]:
    try:
        return state_infos(checkpoint)
    except CorruptDataError as problem:
        problems.append(str(problem))
        return []


def _download(checkpoint: StoredCheckpoint, files: tuple[FileRef, ...], folder: Path) -> list[str]:
    """Fetch each file on its own, so that one damaged file does not hide another."""

    def fetch(file: FileRef) -> str | None:
        try:
            download_verified(checkpoint.store, paths.resolve_reference(checkpoint.key, file.path), folder / file.name, file.digest)
        except (CorruptDataError, InvalidInputError) as problem:
            return str(problem)
        return None

    return [problem for problem in in_parallel(fetch, files, _THREADS) if problem is not None]


def _check_entries(slot: SlotState, folder: Path, known: set[int], open_kind: OpenKind, problems: list[str]) -> int:
    entries = wrong = 0
    first, end = slot.first.to_bytes(2, "big"), (slot.last + 1).to_bytes(2, "big")
    try:
        store = open_kind(slot.backend, folder)
        try:
            for key, _ in store.scan(b"", _AFTER_ALL_KEYS):
                entries += 1
                if not first <= key < end or state_id_of(key) not in known:
                    wrong += 1
        finally:
            store.close()
    except CorruptDataError as problem:
        problems.append(f"slot {slot.slot}: {problem}")
    if wrong:
        problems.append(f"slot {slot.slot}: {wrong} entries are outside key groups {slot.key_groups} or belong to no known state")
    return entries


def _check_operator_files(
    checkpoint: StoredCheckpoint, infos: list[StateInfo], progress: Callable[[str], None], problems: list[str]
) -> int:
    known = {info.state_id for info in infos if is_operator_state(info)}
    broadcast = {info.state_id for info in infos if is_broadcast(info)}
    count = 0
    copies: dict[int, dict[int, str]] = {}
    for part in checkpoint.metadata.operator_state:
        progress(f"operator state of slot {part.slot}")
        entries = _operator_entries(checkpoint, part, problems)
        if entries is None:
            continue
        wrong = sum(1 for entry in entries if entry.slot != part.slot or entry.state_id not in known)
        wrong += sum(1 for entry in entries if entry.whole == (entry.state_id in broadcast))
        if wrong:
            problems.append(f"slot {part.slot}: {wrong} operator states are of another slot, of another kind or of no known state")
        copies[part.slot] = {entry.state_id: _digest(entry) for entry in entries if entry.state_id in broadcast}
        count += sum(len(entry.items) for entry in entries)
    if broadcast:
        problems += _different_copies(checkpoint, infos, copies)
    return count


def _operator_entries(checkpoint: StoredCheckpoint, part: OperatorFile, problems: list[str]) -> tuple[OperatorEntry, ...] | None:
    try:
        return read_operator_file(checkpoint, part)
    except (CorruptDataError, InvalidInputError) as problem:
        problems.append(str(problem))
        return None


def _digest(entry: OperatorEntry) -> str:
    """Tell copies of broadcast state apart without keeping them."""
    return sha256(repr(entry.items).encode()).hexdigest()


def _different_copies(checkpoint: StoredCheckpoint, infos: list[StateInfo], copies: dict[int, dict[int, str]]) -> list[str]:
    """One sentence per broadcast state of which slots have different copies. Slots without a file have no entries."""
    absent = set(range(checkpoint.metadata.parallelism)) - {part.slot for part in checkpoint.metadata.operator_state}
    problems = []
    for info in filter(is_broadcast, infos):
        found = {copy.get(info.state_id) for copy in copies.values()} | ({None} if absent else set())
        if len(found) > 1:
            problems.append(f"slots have different copies of the broadcast state {info.name!r} of uid {info.uid!r}")
    return problems


def _damaged_bundle(checkpoint: StoredCheckpoint, location: FileRef) -> list[str]:
    return _damaged(checkpoint, location, lambda path, name: decode_bundle(path.read_bytes(), path=name))


def _damaged_pack(checkpoint: StoredCheckpoint, pack: FileRef) -> list[str]:
    return _damaged(checkpoint, pack, lambda path, name: check_pack(path, name=name))


def _damaged_table(checkpoint: StoredCheckpoint, table: TableFile) -> list[str]:
    def check(path: Path, name: str) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415  only canonical savepoints need it

        try:
            rows = pq.read_metadata(path).num_rows
        except (OSError, pa.ArrowException) as error:
            raise CorruptDataError(f"not a sound Parquet file: {error}", path=name) from error
        if rows != table.rows:
            raise CorruptDataError("the table has another number of rows", path=name, expected=str(table.rows), found=str(rows))

    return _damaged(checkpoint, table, check)


def _damaged(checkpoint: StoredCheckpoint, file: FileRef, check: Callable[[Path, str], object]) -> list[str]:
    """Download a file and check its contents; ``check`` is called with its local path and its URL."""
    with closing(open_scratch_folder()) as scratch:
        damaged = _download(checkpoint, (file,), scratch.path)
        if damaged:
            return damaged
        try:
            check(scratch.path / file.name, f"{checkpoint.url}/{file.path}")
        except CorruptDataError as problem:
            return [str(problem)]
    return []
