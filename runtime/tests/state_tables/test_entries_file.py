"""A snapshot of a store in memory is read in place, and every damage of it is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import psutil
import pytest

from statefulspark.errors import ClosedError, CorruptDataError, IncompatibleFormatError, UnavailableError
from statefulspark.state.encoding.entries import write_entries
from statefulspark.state.encoding.layout import store_key
from statefulspark.state.store.entries_file import EntriesFile


def _entries(count: int) -> list[tuple[bytes, bytes]]:
    random = Random(7)
    return sorted({store_key(n % 9, 1, random.randbytes(n % 5)): random.randbytes(n % 11) for n in range(count)}.items())


def test_scans_and_lookups_are_those_of_a_dict(tmp_path: Path) -> None:
    """Every pair of bounds, between and at keys, over several places of the index."""
    entries = _entries(1500)
    write_entries(tmp_path / "entries", entries)
    store = EntriesFile(tmp_path / "entries")
    known = dict(entries)
    random = Random(3)
    for _ in range(60):
        first, end = sorted(random.choice(entries)[0] + random.choice((b"", b"\0", b"\xff")) for _ in range(2))
        assert list(store.scan(first, end)) == [entry for entry in entries if first <= entry[0] < end]
    assert list(store.scan(b"", b"\xff\xff\xff")) == entries
    wanted = [*random.sample(list(known), 40), b"", b"\xff\xff", store_key(3, 2, b"x")]
    assert store.get_many(wanted) == [known.get(key) for key in wanted]
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        next(store.scan(b"", b"\xff"))


def test_a_file_without_entries_is_not_a_missing_file(tmp_path: Path) -> None:
    """A snapshot always has the file, so one that is missing was deleted."""
    with pytest.raises(UnavailableError, match="missing"):
        EntriesFile(tmp_path / "missing")
    write_entries(tmp_path / "entries", [])
    assert list(EntriesFile(tmp_path / "entries").scan(b"", b"\xff")) == []
    assert EntriesFile(tmp_path / "entries").get_many([b"x"]) == [None]


def test_every_flipped_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    """Nothing is served of a damaged file, and an unknown version is said to be unknown."""
    write_entries(tmp_path / "entries", _entries(12))
    sound = (tmp_path / "entries").read_bytes()
    damaged = tmp_path / "damaged"
    for at in range(len(sound)):
        damaged.write_bytes(sound[:at] + bytes([sound[at] ^ 0x15]) + sound[at + 1 :])
        with pytest.raises(IncompatibleFormatError if at == 4 else CorruptDataError):
            EntriesFile(damaged)
        damaged.write_bytes(sound[:at])
        with pytest.raises(CorruptDataError):
            EntriesFile(damaged)
    damaged.write_bytes(sound + b"\0")
    with pytest.raises(CorruptDataError):
        EntriesFile(damaged)


def test_entries_out_of_order_are_refused(tmp_path: Path) -> None:
    """A scan would miss some of them."""
    entries = [(store_key(1, 1, number.to_bytes(4, "big")), b"") for number in range(600)]
    write_entries(tmp_path / "entries", [*entries[300:], *entries[:300]])
    with pytest.raises(CorruptDataError, match="out of order"):
        EntriesFile(tmp_path / "entries")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """200,000 entries would take more than 40 MB as objects; the index of their file takes a fraction of one."""
    write_entries(tmp_path / "entries", ((store_key(1, 1, n.to_bytes(8, "big")), b"x" * 40) for n in range(200_000)))
    process = psutil.Process()

    def private() -> int:
        memory = process.memory_info()
        return int(memory.rss - memory.shared)

    before = private()
    store = EntriesFile(tmp_path / "entries")
    peak, count = before, 0
    for count, _ in enumerate(store.scan(b"", b"\xff\xff"), start=1):
        if count % 50_000 == 0:
            peak = max(peak, private())
    assert count == 200_000
    assert peak - before < 15 << 20
