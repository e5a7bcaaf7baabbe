"""The plan of a rescale: key groups against a count one by one, bytes against what slots then really download."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from runtime.tests.checkpoint.sized import SUM, checkpoint_of
from runtime.tests.depth import examples

from statefulspark.checkpoint.formats.metadata import FileRef, InlineEntries
from statefulspark.coordinator.slots.rescale_planning import plan_rescale
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import slot_of
from statefulspark.storage.open import open_store


@given(st.data())
def test_key_groups_and_bytes_add_up(data: st.DataObject) -> None:
    """Each key group is kept from the opened store or copied, never both; sizes are those of the files with at least one key group of the slot."""
    groups = data.draw(st.integers(1, 40))
    before, after = data.draw(st.integers(1, groups)), data.draw(st.integers(1, groups))
    sizes = data.draw(st.lists(st.integers(0, 1 << 40), min_size=before, max_size=before))
    base = checkpoint_of(groups, sizes)
    plan = plan_rescale(base, groups, before, after)
    old, new = ([slot_of(group, slots, groups) for group in range(groups)] for slots in (before, after))
    assert plan.moved_key_groups == sum(one != other for one, other in zip(old, new, strict=True))
    assert plan.checkpoint == 7
    if before == after:
        assert plan.slots == ()
        return
    for slot in plan.slots:
        mine = [group for group in range(groups) if new[group] == slot.slot]
        assert (slot.first, slot.last) == (mine[0], mine[-1])
        needed = {old[group] for group in mine}
        assert slot.fetch_bytes == sum(sizes[each] for each in needed)
        kept = [group for group in mine if old[group] == slot.opened]
        assert len(kept) == max(sum(old[group] == each for group in mine) for each in needed), "another store has more of them"
        assert slot.merged_key_groups == len(mine) - len(kept)
        assert slot.opened is not None
        assert slot.cut_key_groups == old.count(slot.opened) - len(kept)
        assert slot.cut_bytes <= sizes[slot.opened] + 1
        assert slot.merged_key_groups or not slot.merged_bytes
    assert plan.fetch_bytes == sum(slot.fetch_bytes for slot in plan.slots)


@settings(max_examples=examples(20, 100))
@given(st.integers(1, 8), st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.binary(max_size=30)), max_size=20))
def test_slots_download_what_the_plan_says(
    tmp_path_factory: pytest.TempPathFactory, before: int, after: int, rows: list[tuple[int, bytes]]
) -> None:
    """Of the files of the checkpoint, and they copy entries of the key groups that it names only."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "local").mkdir()
    mini = Miniature(open_store((folder / "flights").as_uri()), folder / "local", DictStore)
    mini.start(before)
    mini.begin(0)
    changes = [(bytes([0, group, 0, 1]) + index.to_bytes(2, "big"), value) for index, (group, value) in enumerate(rows)]
    mini.run(0, list(changes))
    base = mini.checkpoint(0)
    plan = plan_rescale(base, 8, before, after)
    mini.start(after)
    for planned, slot in zip(plan.slots, mini.slots, strict=before != after):
        assert slot.restored.downloaded_bytes == planned.fetch_bytes
        opened = next(each.key_groups for each in base.slots if each.slot == planned.opened)
        copied = {group for group in range(planned.first, planned.last + 1) if group not in opened}
        assert len(copied) == planned.merged_key_groups
        assert slot.restored.copied_entries == sum(group in copied for group, _ in rows)


def test_without_a_checkpoint_no_bytes_are_known() -> None:
    plan = plan_rescale(None, 128, 2, 3)
    assert (plan.moved_key_groups, plan.checkpoint, plan.slots, plan.fetch_bytes) == (63, None, (), 0)


def test_inline_entries_count_as_their_bytes() -> None:
    """Slots get them with the plan of their restore."""
    base = checkpoint_of(4, [5])
    inline = base.slots[0].model_copy(update={"shared": (), "backend": "memory", "inline": InlineEntries.of(b"entries")})
    plan = plan_rescale(base.model_copy(update={"slots": (inline,)}), 4, 1, 2)
    assert [slot.fetch_bytes for slot in plan.slots] == [7, 7]


def test_of_a_canonical_savepoint_everything_is_copied() -> None:
    """No store opens its entries."""
    base = checkpoint_of(4, [5])
    file = FileRef(name="entries.parquet", path="entries.parquet", size_bytes=100, checksum=SUM)
    canonical = base.slots[0].model_copy(update={"shared": (), "private": (file,), "backend": "canonical"})
    plan = plan_rescale(base.model_copy(update={"slots": (canonical,)}), 4, 1, 2)
    assert [(slot.opened, slot.cut_key_groups, slot.merged_key_groups, slot.merged_bytes) for slot in plan.slots] == [(None, 0, 2, 50)] * 2


def test_more_slots_than_key_groups_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="parallelism"):
        plan_rescale(None, 128, 2, 129)
