"""Which of Spark's state files a version needs: enough to rebuild it the way Spark does, and nothing of other versions."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.spark.state_files import grouped, has_version, needed_files, versioned, wasteful


def _no_references(path: str) -> tuple[str, ...]:
    raise AssertionError(path)


@dataclass
class Store:
    """What Spark keeps of one store: what each version's value is, and which files it has written and deleted."""

    folder: str
    whole: str
    changes: str
    value: list[int] = field(default_factory=lambda: [0])
    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of a whole version (version, value), of changes (version, difference)."""

    def commit(self, difference: int) -> None:
        self.value.append(self.value[-1] + difference)
        self.files[f"{self.folder}/{len(self.value) - 1}.{self.changes}"] = (len(self.value) - 1, difference)

    def snapshot(self, version: int) -> None:
        self.files[f"{self.folder}/{version}.{self.whole}"] = (version, self.value[version])

    def clean(self, retained: int) -> None:
        """Delete what no version from the oldest retained one on needs."""
        wholes = [version for path, (version, _) in self.files.items() if path.endswith(self.whole)]
        oldest = max((version for version in wholes if version <= len(self.value) - retained), default=0)
        self.files = {path: file for path, file in self.files.items() if file[0] >= oldest}

    def load(self, paths: set[str], version: int) -> int:
        """As Spark loads a version: the newest whole one up to it, then each change; a missing one is an error."""
        present = {path: file for path, file in self.files.items() if path in paths}
        wholes = {at: value for path, (at, value) in present.items() if path.endswith(self.whole) and at <= version}
        start = max(wholes, default=0)
        value = wholes.get(start, 0)
        for at in range(start + 1, version + 1):
            value += present[f"{self.folder}/{at}.{self.changes}"][1]
        return value


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(-9, 9)),
        st.tuples(st.just("snapshot"), st.integers(0, 30)),
        st.tuples(st.just("clean"), st.integers(2, 5)),
    ),
    min_size=1,
    max_size=30,
)


@given(actions=ACTIONS, kind=st.sampled_from([("snapshot", "delta"), ("zip", "changelog")]), back=st.integers(0, 1))
def test_the_needed_files_rebuild_the_version_and_leave_none_out_of_use(
    actions: list[tuple[str, int]], kind: tuple[str, str], back: int
) -> None:
    """Against a model of a store whose versions are sums: the running batch's version and the one after it, however Spark cleans up."""
    store = Store("state/0/1", *kind)
    for what, number in actions:
        if what == "commit":
            store.commit(number)
        elif what == "snapshot" and len(store.value) > 1:
            store.snapshot(1 + number % (len(store.value) - 1))
        elif what == "clean":
            store.clean(number)
    version = max(0, len(store.value) - 1 - back)
    needed = needed_files(store.files, version, lambda _: ())
    assert needed <= store.files.keys()
    assert store.load(needed, version) == store.value[version]
    # Each file matters: without it the version has another value or cannot be loaded.
    for path in needed:
        at = store.files[path][0]
        assert at <= version
        assert path.endswith(kind[1]) or not any(other != path and other.endswith(kind[0]) for other in needed)
        assert sum(store.files[other][0] == at for other in needed) == 1


def test_folders_are_stores_of_their_own_and_the_rest_is_always_needed() -> None:
    """Stores of a join below one partition; schemas and metadata; checksums, hidden and temporary files are left alone."""
    paths = {
        "state/0/_metadata/metadata",
        "state/0/0/left-keyToNumValues/_metadata/schema",
        "state/0/0/left-keyToNumValues/3.delta",
        "state/0/0/left-keyToNumValues/2.snapshot",
        "state/0/0/right-keyToNumValues/1.delta",
        "state/0/0/right-keyToNumValues/2.delta",
        "state/0/0/right-keyToNumValues/3.delta",
    }
    others = {
        "state/0/0/left-keyToNumValues/2.delta",
        "state/0/0/left-keyToNumValues/4.delta",
        "state/0/0/left-keyToNumValues/3.delta.crc",
        "state/0/0/left-keyToNumValues/.3.delta.crc",
        "state/0/0/right-keyToNumValues/.3.delta.0c1f.TID7.tmp",
    }
    assert needed_files(paths | others, 3, _no_references) == paths
    assert needed_files(paths | others, 0, _no_references) == set()


def test_table_files_are_needed_when_a_needed_zip_names_them() -> None:
    """Those of other versions, and half-copied ones, are not."""
    paths = {"state/0/0/4.zip", "state/0/0/5.zip", "state/0/0/SSTs/000004-a.sst", "state/0/0/SSTs/000009-b.sst", "state/0/0/logs/3-c.log"}
    asked: list[str] = []

    def references(path: str) -> list[str]:
        asked.append(path)
        return ["state/0/0/SSTs/000009-b.sst", "state/0/0/logs/3-c.log"]

    assert needed_files(paths, 5, references) == {"state/0/0/5.zip", "state/0/0/SSTs/000009-b.sst", "state/0/0/logs/3-c.log"}
    assert asked == ["state/0/0/5.zip"]


def test_files_with_ids_are_all_needed_up_to_the_version() -> None:
    """Which of two files of a version belongs to the job's history is not in their names."""
    first, second = "1f0e8a52-0000-4000-8000-000000000001", "1f0e8a52-0000-4000-8000-000000000002"
    paths = {f"state/0/0/{n}_{name}.{kind}" for n in (1, 2, 3) for name in (first, second) for kind in ("changelog", "zip")}
    assert needed_files(paths, 2, lambda _: ()) == {path for path in paths if "/3_" not in path}


def test_a_version_that_a_batch_made_is_seen() -> None:
    """A batch that did not run left no file of its version; a checksum file is none."""
    paths = ["state/0/0/4.delta", "state/0/1/5.delta.crc", "state/0/_metadata/metadata"]
    assert has_version(paths, 4)
    assert not has_version(paths, 5)
    assert versioned("state/0/_metadata/v2/5") is None


@given(
    live=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
    dead=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
)
def test_what_stays_is_at_least_half_in_use(live: dict[str, int], dead: dict[str, int]) -> None:
    """So storage holds at most twice of what is needed."""
    packs = {name: live.get(name, 0) + dead.get(name, 0) for name in {*live, *dead}}
    kept = packs.keys() - wasteful(packs, live)
    assert sum(packs[name] for name in kept) <= 2 * sum(live.get(name, 0) for name in kept)
    assert all(packs[name] > 2 * live.get(name, 0) for name in packs.keys() - kept)


@given(
    sizes=st.dictionaries(st.text("abc", min_size=1, max_size=4), st.integers(0, 50)), alone=st.integers(1, 40), pack=st.integers(40, 80)
)
def test_every_file_is_in_one_pack_and_large_ones_are_alone(sizes: dict[str, int], alone: int, pack: int) -> None:
    """No pack of several files is larger than the bound."""
    groups = grouped(sizes, alone_bytes=alone, pack_bytes=pack)
    assert sorted(path for group in groups for path in group) == sorted(sizes)
    for group in groups:
        assert group
        if len(group) > 1:
            assert all(sizes[path] < alone for path in group)
            assert sum(sizes[path] for path in group) <= pack
