"""References from checkpoints and savepoints to the packs of Spark's own state, and how a restore finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.formats.metadata import FileRef
from statefulspark.checkpoint.formats.records import PackRef
from statefulspark.checkpoint.lineage.lineage import Lineage
from statefulspark.checkpoint.spark.state_uploader import StoredPack
from statefulspark.checkpoint.transfers import Copier, in_parallel
from statefulspark.storage.base import ObjectStore

_FOLDER = "spark-state"
_THREADS = 4


def references_to(packs: Iterable[PackRef], folder: str) -> tuple[FileRef, ...]:
    """References to packs of the job's folder, for the ``_metadata`` of a checkpoint."""
    return tuple(
        FileRef(
            name=pack.key.rpartition("/")[2],
            path=paths.relative_reference(folder, pack.key),
            size_bytes=pack.size_bytes,
            checksum=pack.checksum,
        )
        for pack in packs
    )


def store_in_savepoint(
    packs: Iterable[PackRef], source: ObjectStore, target: ObjectStore, folder: str, open_store: Callable[[str], ObjectStore]
) -> tuple[FileRef, ...]:
    """Copy packs into a savepoint's own folder and name them there.

    Args:
        packs: Oldest first.
        source: Opened at the job folder.
        target: Opened at the folder above the savepoint's.
        folder: Name of the savepoint's folder.
        open_store: Opens what job and savepoint have in common: within one storage no bytes move through this machine.

    Raises:
        UnavailableError: Storage did not answer; the savepoint has no ``_metadata`` and is no savepoint.
        CorruptDataError: A pack is damaged or missing.
    """
    copier = Copier(source, target, open_store)

    def copy(pack: PackRef) -> FileRef:
        name = pack.key.rpartition("/")[2]
        path = f"{_FOLDER}/{name}"
        copier.copy(pack.key, f"{folder}/{path}", pack.digest)
        return FileRef(name=name, path=path, size_bytes=pack.size_bytes, checksum=pack.checksum)

    return tuple(in_parallel(copy, packs, _THREADS))


def stored_packs(lineage: Lineage, store: ObjectStore) -> list[StoredPack]:
    """The packs that a lineage's state of Spark's is made of, oldest first: those of the base, then those of the batches after it.

    Args:
        lineage: Of the attempt that starts.
        store: Opened at its job folder.
    """
    base = lineage.base
    found: list[StoredPack] = []
    if base is not None:
        is_own = base.store.url.rstrip("/") == store.url.rstrip("/")
        for file in base.metadata.spark_state:
            key = paths.resolve_reference(base.key, file.path)
            own = PackRef(key=key, size_bytes=file.size_bytes, checksum=file.checksum) if is_own else None
            found.append(StoredPack(base.store, key, file.digest, own))
    after = base.metadata.batch if base is not None else -1
    for pack in (pack for record in lineage.records for pack in record.spark_state):
        position = paths.spark_state_position(pack.key)
        # A pack of the base's own batch that the base does not name holds nothing that the base lacks.
        if position is not None and position[1] > after:
            found.append(StoredPack(store, pack.key, pack.digest, pack))
    return found
