"""Deletes what a checkpoint or savepoint has uploaded that was canceled and can never be complete.

Only its own objects go: their names tell them from those of every other checkpoint, of this driver or another one, and nothing ever named them,
because a ``_metadata`` that names them was never written. So neither a fence nor a reference has to be checked, and a driver that is frozen
meanwhile does no harm when it continues. An upload may end late, at a slot that was frozen or in a storage that had not answered. So the
deletion is repeated, and what appears after the last repetition is deleted by retention or by `statefulspark gc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statefulspark.checkpoint.formats import paths
from statefulspark.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CanceledUploads:
    """Names the objects of one canceled checkpoint or savepoint.

    Attributes:
        open_store: Opens the job folder, or the folder above the savepoint's.
        checkpoint_id: Number of the checkpoint or savepoint.
        nonce: Part of the names of its objects.
        savepoint_folder: Name of the savepoint's folder; None for a checkpoint.
    """

    open_store: Callable[[], ObjectStore]
    checkpoint_id: int
    nonce: str
    savepoint_folder: str | None = None

    def delete(self) -> int:
        """Delete the objects that are stored now; returns their number. Repeating it is fine.

        Raises:
            InvalidInputError: The savepoint's folder cannot be opened, so nothing was uploaded.
            UnavailableError: Storage did not answer; some objects may be left.
        """
        store = self.open_store()
        folder = self.savepoint_folder or paths.checkpoint_folder(self.checkpoint_id)
        found = set(paths.own_files((info.key for info in store.list(f"{folder}/")), folder))
        if paths.metadata_key(folder) in found:
            return 0  # of another driver, or written by hand: retention decides
        if self.savepoint_folder is None:
            found |= {info.key for info in store.list(paths.shared_prefix(self.checkpoint_id, self.nonce))}
            found = {key for key in found if paths.is_uploaded_by(key, self.checkpoint_id, self.nonce)}
        store.delete(sorted(found))
        return len(found)
