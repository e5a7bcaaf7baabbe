"""Savepoints with long lists: of the release that introduced segments, and of the one before, in which a list was one value. Never regenerate them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

from statefulspark import KeyedProcessFunction, ListStateDescriptor, RuntimeContext, StateTtlConfig, Time, Types
from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.formats import documents
from statefulspark.checkpoint.inspect.reader import read_state, state_sizes
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.errors import IncompatibleFormatError
from statefulspark.storage.open import open_store
from statefulspark.testing import SAVEPOINT, TestingJob

GOLDEN = Path(__file__).parent / "golden"
HELD = {"ada": list(range(503)), "bob": [0, 1, 2]}
"""Ada's list was written in three batches: 500 elements, 2 and 1."""


class Collect(KeyedProcessFunction):
    """Adds a range of numbers to two lists, one of which expires in a hundred years."""

    def open(self, runtime_context: RuntimeContext) -> None:
        fading = ListStateDescriptor("fading", Types.STRING())
        fading.enable_time_to_live(StateTtlConfig.new_builder(Time.days(36500)).build())
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self.fading = runtime_context.get_list_state(fading)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        added = range(value.first, value.end)
        self.numbers.add_all(added)
        self.fading.add_all([str(number) for number in added])
        yield value.user, len(list(self.numbers.get())), len(list(self.fading.get()))


@pytest.mark.parametrize("written", ["one-value-lists", "segmented-lists"])
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_savepoint_with_long_lists_reads_restores_and_goes_on(
    tmp_path: Path, backend: Literal["memory", "rocksdb"], written: str
) -> None:
    """Verified, decoded, taken over by three slots, appended to, and written again by today's code, in a version that says so."""
    shutil.copytree(GOLDEN / f"savepoint-{backend}-{written}", tmp_path / "savepoint")
    url = (tmp_path / "savepoint").as_uri()
    assert verify(url).problems == ()
    _assert_holds(url, HELD)
    assert {size.info.name: size.entries for size in state_sizes(url) if size.entries} == {"numbers": 2, "fading": 2}
    with TestingJob(
        Collect(),
        "user STRING, first BIGINT, end BIGINT",
        "user STRING, numbers BIGINT, fading BIGINT",
        key="user",
        parallelism=3,
        backend=backend,
        restore_from=url,
        folder=tmp_path / "job",
    ) as job:
        assert sorted(job.run([("ada", 503, 504), ("bob", 3, 4), SAVEPOINT])) == [("ada", 504, 504), ("bob", 4, 4)]
        _assert_holds(job.savepoints[-1], {"ada": list(range(504)), "bob": [0, 1, 2, 3]})
        segmented = {state["name"] for state in open_checkpoint(job.savepoints[-1], open_store).metadata.states if state.get("segmented")}
        assert segmented == {"numbers", "fading"}


def test_a_release_without_segments_refuses_the_savepoint_as_of_an_unknown_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as damage, and before anything is read. Its documents go up to version 4."""
    monkeypatch.setattr(documents, "FORMAT_VERSION", 4)
    shutil.copytree(GOLDEN / "savepoint-memory-segmented-lists", tmp_path / "savepoint")
    with pytest.raises(IncompatibleFormatError, match="expected format_version 1 to 4, found format_version 5"):
        open_checkpoint((tmp_path / "savepoint").as_uri(), open_store)


def _assert_holds(url: str, held: dict[str, list[int]]) -> None:
    assert {entry.key: entry.value for entry in read_state(url, "testing", "numbers")} == held
    for key, numbers in held.items():
        assert [entry.value for entry in read_state(url, "testing", "numbers", key=key)] == [numbers]
    fading = list(read_state(url, "testing", "fading"))
    assert {entry.key: entry.value for entry in fading} == {key: [str(number) for number in numbers] for key, numbers in held.items()}
    assert all(entry.expires_ms is not None and entry.user_key is None for entry in fading)
