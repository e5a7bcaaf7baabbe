"""Files in temporary space that another program deletes while they are in use: an error, never empty state.

A store that finds no files in its folder starts empty, as that of a new job does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.checkpoint.test_real_stores import KINDS

from statefulspark.checkpoint.inspect import verify as verification
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.checkpoint.restore import slot_files as restore
from statefulspark.checkpoint.write.publish import publish
from statefulspark.errors import CorruptDataError, UnavailableError
from statefulspark.state.encoding.layout import StateInfo, store_key
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state.types.types import Types
from statefulspark.storage.open import open_store

INFO = StateInfo(1, "u", "n", "value", [Types.STRING().to_json()], Types.LONG().to_json())


@pytest.fixture(params=KINDS)
def mini(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Miniature]:
    """A job of one slot whose only checkpoint, 1, holds a value."""
    (tmp_path / "local").mkdir()
    job = open_store((tmp_path / "flights").as_uri())
    mini = Miniature(job, tmp_path / "local", KINDS[request.param], backend=request.param, states=(INFO.to_json(),))
    mini.start(1)
    mini.begin(0)
    mini.run(0, [(store_key(3, 1, Types.STRING().encode("x")), b"\x01" + Types.LONG().encode(7))])
    mini.checkpoint(0)
    yield mini
    for slot in mini.slots:
        slot.store.close()


def _values(mini: Miniature) -> dict[Any, Any]:
    return {entry.key: entry.value for entry in read_state(mini.job.url, "u", "n")}


def _delete_after_download(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Delete what is downloaded once its digest is known to be right."""
    download = module.download_verified

    def deleted(store: Any, key: str, path: Path, digest: Any) -> None:
        download(store, key, path, digest)
        path.unlink()

    monkeypatch.setattr(module, "download_verified", deleted)


def test_a_reader_whose_files_are_deleted_does_not_report_empty_state(mini: Miniature, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the download and before the store is opened."""
    assert _values(mini) == {"x": 7}
    _delete_after_download(monkeypatch, restore)
    for read in (_values, lambda mini: state_sizes(mini.job.url)):
        with pytest.raises(UnavailableError, match=r"another program deleted a temporary file that was in use: .*statefulspark-reader-"):
            read(mini)


def test_verify_does_not_take_them_for_damage_in_storage(mini: Miniature, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sound nor damaged: it could not be checked."""
    assert verify(mini.job.url).sound
    _delete_after_download(monkeypatch, verification)
    with pytest.raises(UnavailableError, match="another program deleted"):
        verify(mini.job.url)


def test_memory_is_read_strictly_up_to_the_last_moment(tmp_path: Path) -> None:
    """Between the check of the folder and the opening of the store."""
    with pytest.raises(UnavailableError, match="another program deleted"):
        open_snapshot("memory", tmp_path / "deleted")


def test_a_slot_whose_files_are_deleted_does_not_start_empty(mini: Miniature, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is sound, so it is not given up: the next attempt restores it."""
    with monkeypatch.context() as patch:
        _delete_after_download(patch, restore)
        with pytest.raises(UnavailableError, match="another program deleted"):
            mini.start(1)
    assert mini.start(1) == 0
    assert len(mini.contents()) == 1


def test_a_snapshot_whose_files_are_deleted_is_not_uploaded(mini: Miniature, tmp_path: Path) -> None:
    """The checkpoint fails, and the next one is taken."""
    (tmp_path / "snapshot").mkdir()
    with pytest.raises(UnavailableError, match=r"another program deleted a temporary file that was in use: .*snapshot"):
        mini.slots[0].uploader.upload(tmp_path / "snapshot", 2, nonce="0" * 7, base_checkpoint_id=None, step_batches={})


def test_a_checkpoint_without_a_slots_files_is_damaged(mini: Miniature) -> None:
    """No release writes one, so it cannot be taken for one of a slot without state."""
    written = mini.checkpoint(0, publish_it=False)
    publish(mini.job, written.model_copy(update={"slots": (written.slots[0].model_copy(update={"shared": (), "private": ()}),)}))
    assert verify(mini.job.url).problems == (f"slot 0: {mini.job.url}/chk-2/_metadata: slot 0 has no files",)
    for read in (_values, lambda mini: mini.start(1)):
        with pytest.raises(CorruptDataError, match="slot 0 has no files"):
            read(mini)
