"""A canonical savepoint is whole or none, whatever fails while it is written, and damage of it is found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statefulspark.checkpoint.catalog import list_checkpoints
from statefulspark.checkpoint.formats.metadata import decode_metadata
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.errors import CorruptDataError, IncompatibleFormatError, StatefulSparkError
from statefulspark.state.store.open_store import open_snapshot
from statefulspark.state_tables.canonical.conversion import convert_to_canonical
from statefulspark.storage.open import open_store

from .canonical_savepoints import converted, restored
from .snapshots import counts_of_users


class KilledError(Exception):
    """The process is gone: no error of the product, which tidies up after those."""


class Killed:
    """Passes calls on to a store; from the call with a number on, none is done."""

    def __init__(self, inner: Any, at: int) -> None:
        self._inner, self._at, self.calls = inner, at, 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        self.calls += 1
        if self.calls >= self._at:
            raise KilledError
        return method(*args)


def test_an_interrupted_conversion_leaves_no_savepoint(tmp_path: Path) -> None:
    """Killed before any of its calls, so that it cannot tidy up: there is no _metadata before the last."""
    url, _ = counts_of_users(tmp_path, 3)
    for at in range(1, 100):
        target = tmp_path / f"target-{at}"

        def open_killed(name: str, at: int = at, target: Path = target) -> Any:
            store = open_store(name)
            return Killed(store, at) if name == target.as_uri() else store

        try:
            made = convert_to_canonical(url, target.as_uri(), open_store=open_killed)
        except KilledError:
            assert not list(target.rglob("_metadata"))
            assert not target.exists() or {each.status for each in list_checkpoints(target.as_uri(), open_store)} == {"unfinished"}
        else:
            assert verify(made.url).sound
            assert at > 6, "every call was tried"
            return


def test_every_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    """A flipped byte, a cut and a missing file of each kind: verify names it, and a restore refuses what it reads."""
    url, _ = counts_of_users(tmp_path, 40)
    made = Path(converted(url, tmp_path / "target").url.removeprefix("file://"))
    for number, path in enumerate(sorted(each for each in made.rglob("*") if each.is_file())):
        data = path.read_bytes()
        for harm in (data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :], data[:-2], None):
            path.unlink()
            if harm is not None:
                path.write_bytes(harm)
            if path.name != "_metadata" or harm is not None:
                problems = verify(made.as_uri()).problems
                assert any(path.name in problem for problem in problems), path
            if path.name in ("_metadata", "entries.parquet"):
                gone = path.name == "_metadata" and harm is None
                with pytest.raises(StatefulSparkError, match="neither a checkpoint" if gone else path.name):
                    restored(made.as_uri(), "memory", 1, tmp_path / f"restored-{number}-{len(harm or b'')}")
            path.write_bytes(data)
    assert verify(made.as_uri()).sound


def test_formats_of_later_releases_are_unknown(tmp_path: Path) -> None:
    """Not damaged: nobody should throw them away."""
    url, _ = counts_of_users(tmp_path, 3)
    made = Path(converted(url, tmp_path / "target").url.removeprefix("file://"))
    assert (made / "_metadata").read_bytes().startswith(b'{"format_version":14,')
    with pytest.raises(IncompatibleFormatError):
        decode_metadata((made / "_metadata").read_bytes().replace(b'"format_version":14', b'"format_version":999'), path="x")
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary())], metadata={"statefulspark.entries": "2"})
    (tmp_path / "later").mkdir()
    pq.write_table(schema.empty_table(), tmp_path / "later" / "entries.parquet")
    with pytest.raises(IncompatibleFormatError, match="expected 1, found 2"):
        open_snapshot("canonical", tmp_path / "later")
    pq.write_table(schema.with_metadata(None).empty_table(), tmp_path / "later" / "entries.parquet")
    with pytest.raises(CorruptDataError, match="not a file of entries"):
        open_snapshot("canonical", tmp_path / "later")


def test_a_damaged_origin_is_not_converted(tmp_path: Path) -> None:
    """The file is named, and nothing is left in the target."""
    url, _ = counts_of_users(tmp_path, 3)
    file = next((tmp_path / "savepoint").rglob("entries"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match="entries"):
        converted(url, tmp_path / "target")
    assert not [path for path in (tmp_path / "target").rglob("*") if path.is_file()]
