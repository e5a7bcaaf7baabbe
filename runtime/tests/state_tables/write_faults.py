"""Every command that writes a savepoint from another one, with what it must write, computed without the product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from runtime.tests.checkpoint.dict_store import DictStore
from runtime.tests.checkpoint.miniature import Miniature
from state_snapshots import UID

from statefulspark import state_tables
from statefulspark.checkpoint.catalog import OpenStore, open_checkpoint
from statefulspark.checkpoint.formats import paths
from statefulspark.checkpoint.inspect.verify import verify
from statefulspark.state_tables.bootstrap.declarations import NamedColumns
from statefulspark.state_tables.bootstrap.file_bootstrap import FileBootstrap, bootstrap_files
from statefulspark.state_tables.canonical.conversion import convert_to_canonical
from statefulspark.state_tables.write.changes import Changes
from statefulspark.state_tables.write.key_deletion import delete_keys_of
from statefulspark.state_tables.write.rewriting import rewrite
from statefulspark.storage.open import open_store

from .canonical_savepoints import table_of
from .snapshots import counts_of_users

Rows = dict[str, int]
"""Values or due times of timers, by user."""
USERS = 4


@dataclass(frozen=True)
class Place:
    """A savepoint, rows in a file, and a job's folder that gets new savepoints."""

    folder: Path
    origin: str
    target: str

    @classmethod
    def made(cls, folder: Path) -> Place:
        origin, _ = counts_of_users(folder, USERS)
        (folder / "rows").mkdir()
        pq.write_table(pa.table({"user": ["user-1", "new"], "value": [100, 200]}), folder / "rows" / "some.parquet")
        job = Miniature(open_store((folder / "job").as_uri()), folder / "local", DictStore)
        (folder / "local").mkdir()
        job.start(1)
        return cls(folder, origin, job.job.url)

    @property
    def rows(self) -> str:
        """URL of the file."""
        return (self.folder / "rows" / "some.parquet").as_uri()

    def read_only(self) -> dict[Path, bytes]:
        """Bytes of what no command may change."""
        folders = (Path(self.origin.removeprefix("file://")), self.folder / "rows")
        return {path: path.read_bytes() for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()}

    def complete(self) -> list[str]:
        """The savepoints in the target that have a ``_metadata``: a reader takes them for whole."""
        root = Path(self.target.removeprefix("file://"))
        return sorted(paths.folder_url(self.target, each.parent.name) for each in root.glob("savepoint-*/_metadata"))


@dataclass(frozen=True)
class Command:
    """A command that writes a savepoint.

    Attributes:
        run: Writes it; returns its URL.
        state: Name of its state.
        values: What the state must be, computed without the product.
        timers: Its timers.
    """

    run: Callable[[Place, OpenStore], str]
    state: str
    values: Rows
    timers: Rows

    def check(self, url: str) -> None:
        """The savepoint is whole and right, for our reader and for any other one."""
        assert verify(url).sound
        assert _rows(state_tables.read_arrow(url, UID, self.state), "value") == self.values
        assert _rows(table_of(url, UID, self.state), "value") == self.values
        if self.timers:
            assert _rows(state_tables.read_arrow(url, UID, "event-timers"), "timestamp_ms") == self.timers


def _rows(table: pa.Table, column: str) -> Rows:
    return dict(zip(table["user"].to_pylist(), table[column].to_pylist(), strict=True))


def _convert(place: Place, opener: OpenStore) -> str:
    return convert_to_canonical(place.origin, place.target, open_store=opener).url


def _rename(place: Place, opener: OpenStore) -> str:
    changes = Changes(states={(UID, "count"): "number"})
    return rewrite(open_checkpoint(place.origin, opener), place.target, changes, open_store=opener).url


def _regroup(place: Place, opener: OpenStore) -> str:
    return rewrite(open_checkpoint(place.origin, opener), place.target, Changes(), max_parallelism=7, open_store=opener).url


def _delete(place: Place, opener: OpenStore) -> str:
    return delete_keys_of(open_checkpoint(place.origin, opener), place.target, UID, ["user-0", "nobody"], open_store=opener).url


def _bootstrap(place: Place, opener: OpenStore) -> str:
    wanted = FileBootstrap(uid=UID, state="count", columns=NamedColumns(keys=("user",)), max_parallelism=5)
    return bootstrap_files(wanted, place.rows, place.target, None, open_store=opener, open_rows=opener).savepoint.url


def _merge(place: Place, opener: OpenStore) -> str:
    wanted = FileBootstrap(uid=UID, state="count", columns=NamedColumns(keys=()))
    origin = open_checkpoint(place.origin, opener)
    return bootstrap_files(wanted, place.rows, place.target, origin, open_store=opener, open_rows=opener).savepoint.url


def _without(rows: Rows, keys: Iterable[str]) -> Rows:
    return {key: value for key, value in rows.items() if key not in keys}


_VALUES: Rows = {f"user-{number}": number for number in range(USERS)}
_TIMERS: Rows = {f"user-{number}": number - 5 for number in range(USERS)}
_GIVEN: Rows = {"user-1": 100, "new": 200}
COMMANDS: dict[str, Command] = {
    "convert": Command(_convert, "count", _VALUES, _TIMERS),
    "rename": Command(_rename, "number", _VALUES, _TIMERS),
    "regroup": Command(_regroup, "count", _VALUES, _TIMERS),
    "delete-keys": Command(_delete, "count", _without(_VALUES, ["user-0"]), _without(_TIMERS, ["user-0"])),
    "bootstrap": Command(_bootstrap, "count", _GIVEN, {}),
    "merge": Command(_merge, "count", _VALUES | _GIVEN, _TIMERS),
}
