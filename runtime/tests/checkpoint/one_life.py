"""What a job does to a storage in its life, for the tests of each store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature, apply

from statefulspark.checkpoint.formats.paths import common_root
from statefulspark.checkpoint.write.retention import Retention
from statefulspark.state.store.base import Change
from statefulspark.storage.base import ObjectStore

CHANGES: list[Change] = [(bytes([0, key_group, 0, 1]), b"%d" % key_group) for key_group in range(8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A job that has taken a savepoint."""

    mini: Miniature
    expected: dict[bytes, bytes]
    """Its state."""
    savepoints: ObjectStore
    url: str
    """Of the savepoint."""


def life(root: str, opened: Callable[[str], ObjectStore], folder: Path) -> Life:
    """Batches, checkpoints, retention, another number of slots, and a savepoint that is copied inside the storage."""
    mini = Miniature(opened(f"{root}/checkpoints/flights"), folder, DictStore, open_store=opened)
    mini.start(2)
    mini.begin(0)
    mini.run(0, CHANGES)
    mini.checkpoint(0)
    mini.begin(1)
    mini.run(1, [(CHANGES[3][0], None)])
    mini.checkpoint(1)
    assert mini.lineage is not None
    assert Retention(mini.job, retained=1).run(mini.lineage, now_s=0.0, check_fence=mini.check_fence).checkpoints == (1,)
    mini.begin(2)
    expected = apply(apply({}, CHANGES), [(CHANGES[3][0], None)])
    assert mini.start(3) == 1
    assert mini.contents() == expected
    mini.checkpoint(1)
    savepoints = opened(f"{root}/savepoints")
    common = common_root(mini.job.url, savepoints.url)
    assert common == root
    url = mini.savepoint(savepoints, "savepoint-flights-1", 1, common=opened(common))
    return Life(mini=mini, expected=expected, savepoints=savepoints, url=url)


def resumes(lived: Life) -> None:
    """The job's own files are gone, and the savepoint has all."""
    mini = lived.mini
    mini.job.delete([info.key for info in mini.job.list("")])
    assert mini.start(1, origin=lived.url) == 1
    assert mini.contents() == lived.expected
