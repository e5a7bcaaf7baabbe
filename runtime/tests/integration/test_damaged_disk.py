"""The local disk of a running job's slots returns other bytes than were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime.tests.bad_disk import flip_keeping_times

from .oracles import by, counted, files, finals
from .work import Work, wait_until

pytestmark = pytest.mark.timeout(600)
_ROWS = 20_000


def test_slots_are_restored_and_the_output_is_right(work: Work, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The batch that meets the damage fails, the slot ends, and the next one downloads what is damaged; no row is lost or counted twice."""
    inputs = files(seed=51, number=3, rows=_ROWS, accounts=20_000)
    expected = counted(by("account", inputs))
    local = tmp_path / "local"
    # Hardly a cache: it would hold all entries, which the files need not be read for.
    small = {"memory": {"managed": False}, "options": {"block.cache-size": "64kb"}}
    work.spec = {"stateBackend": {"type": "rocksdb", "rocksdb": {"localDir": str(local), **small}}}
    work.write(inputs[0])
    job = work.start()
    work.wait_rows(_ROWS, 200)
    wait_until(lambda: job.status().batch >= 0, 60, "the first commit")
    job.trigger_checkpoint(60)
    # The entries are in the caches of the slots that wrote them: others, restored from the checkpoint, read the files.
    job.rescale(3, 120)
    # By inode: slots link what those before them have left.
    damaged = {path.stat().st_ino: path for path in local.rglob("state/store/*.sst") if path.stat().st_size > 1024}
    assert damaged
    for path in damaged.values():
        flip_keeping_times(path)
    for number in (1, 2):
        work.write(inputs[number])
    assert work.wait_rows(3 * _ROWS, 300) == sorted(expected)
    told = capsys.readouterr().out
    assert "was lost: its local state cannot be used" in told, told
    job.stop(savepoint=False, target=None, drain=False, timeout_s=100)
    assert work.state("count", "total") == finals(expected, 2)
