"""What is checked before an attempt is claimed, without Spark."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from structlog.testing import capture_logs

from statefulspark.checkpoint.write.removal import remove_state
from statefulspark.errors import InvalidInputError
from statefulspark.job.start.preflight import RestorableState, check_sink_batches, restorable_state, warn_of_restored_ids
from statefulspark.storage.open import open_store


@pytest.mark.parametrize("sink_batch", [-1, 0, 7])
@pytest.mark.parametrize("lived", ["never", "claimed", "began", "checkpointed", "removed"])
def test_a_file_sink_that_has_later_batches_than_the_job_has_begun_is_refused(tmp_path: Path, lived: str, sink_batch: int) -> None:
    """It would skip the batches of the same numbers. A job that has begun batch 0 may find that batch there."""
    store = open_store((tmp_path / "flights").as_uri())
    (tmp_path / "local").mkdir()
    mini = Miniature(store, tmp_path / "local", DictStore)
    if lived != "never":
        mini.start(1)
    if lived in ("began", "checkpointed", "removed"):
        mini.begin(0)
    if lived in ("checkpointed", "removed"):
        mini.run(0, [])
        mini.checkpoint(0)
    if lived == "removed":
        assert mini.lineage is not None
        assert mini.lineage.claim is not None
        remove_state(store, mini.lineage.claim, now_ms=0)
    begun = -1 if lived in ("never", "claimed", "removed") else 0
    expected = pytest.raises(InvalidInputError, match=f"its sink has batches up to {sink_batch}") if sink_batch > begun else nullcontext()
    with expected:
        check_sink_batches(restorable_state(store, None, open_store), sink_batch)


@pytest.mark.parametrize(("lived", "batch", "warned"), [("never", 3, [4]), ("never", -1, []), ("checkpointed", 3, [])])
def test_a_new_job_from_another_jobs_snapshot_is_warned_of_its_batch_ids(tmp_path: Path, lived: str, batch: int, warned: list[int]) -> None:
    """The other job may have used the same ids since; in a job's own directory they only increase."""
    store = open_store((tmp_path / "flights").as_uri())
    (tmp_path / "local").mkdir()
    if lived == "checkpointed":
        mini = Miniature(store, tmp_path / "local", DictStore)
        mini.start(1)
        mini.begin(0)
        mini.run(0, [])
        mini.checkpoint(0)
    with capture_logs() as logs:
        warn_of_restored_ids(store, RestorableState(max_parallelism=None, uids=frozenset(), url="", batch=batch))
    assert [each["first_batch"] for each in logs] == warned
