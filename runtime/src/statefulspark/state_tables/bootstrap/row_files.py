"""Reads rows from files of Parquet or JSON lines, in any store and in bounded memory: one file at a time is on the local disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.errors import InvalidInputError
from statefulspark.storage.local.os_errors import local_disk

_ROWS: Final = 16_384
_PARQUET: Final = (".parquet", ".pq")
_LINES: Final = (".jsonl", ".ndjson", ".json")
_HIDDEN: Final = ("_", ".")
"""First characters of what writers leave beside their files, such as ``_SUCCESS``."""


@dataclass(slots=True)
class Counter:
    """Number of rows read so far."""

    rows: int = 0


class RowFiles:
    """The files of a folder, or one file. Row numbers in errors continue from file to file, in the order of their names.

    Args:
        url: URL or path of a file, or of a folder with files.
        open_store: Opens the store of a URL.
        columns: Types of columns of JSON lines, if they are known.

    Raises:
        InvalidInputError: There are no such files.
        UnavailableError: Storage did not answer.
    """

    def __init__(self, url: str, *, open_store: OpenStore, columns: pa.Schema | None = None) -> None:
        parent, _, name = url.rstrip("/").rpartition("/")
        if not name:
            raise InvalidInputError("names no file or folder", field="rows", remedy="Name a Parquet file or a folder of such files")
        self._url = url
        self._store = open_store(parent or ("/" if url.startswith("/") else "."))
        self._columns = columns
        keys = [name] if self._store.head(name) is not None else [info.key for info in self._store.list(f"{name}/")]
        self.keys = sorted(key for key in keys if not any(part.startswith(_HIDDEN) for part in key.split("/")[1:]))
        """The files, below the folder above ``url``."""
        strange = next((key for key in self.keys if not key.lower().endswith((*_PARQUET, *_LINES))), None)
        if not self.keys or strange is not None:
            raise InvalidInputError(
                f"{self._url} has no files" if strange is None else f"{strange} is neither Parquet nor JSON lines",
                field="rows",
                remedy=f"Name files with the ending {', '.join((*_PARQUET, *_LINES))}",
            )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the first file, which is downloaded for them once.

        Raises:
            InvalidInputError: It is not sound.
            UnavailableError: Storage did not answer, or the local disk is full or fails.
        """
        with self._opened(self.keys[0]) as batches:
            return batches.schema

    def reader(self, names: Mapping[str, str], progress: Callable[[str], None]) -> tuple[pa.RecordBatchReader, Counter]:
        """Return the rows, and what counts them. Reading them raises as `schema` does, also if a file has other columns or types than the first.

        Args:
            names: The wanted columns, and the names that they get.
            progress: Called with the name of each file before it is read.
        """
        first = self.schema
        schema = pa.schema([first.field(old).with_name(new) for old, new in names.items()])
        counted = Counter()

        def rows() -> Iterator[pa.RecordBatch]:
            for key in self.keys:
                progress(f"the rows of {key}, after {counted.rows:,} others")
                with self._opened(key) as batches:
                    if missing := [name for name in names if name not in batches.schema.names]:
                        raise InvalidInputError(f"{key} has no column {missing[0]!r}", field="rows", remedy=f"{self.keys[0]} has it")
                    for batch in batches:
                        counted.rows += batch.num_rows
                        columns = [batch.column(old).cast(schema.field(new).type) for old, new in names.items()]
                        yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return pa.RecordBatchReader.from_batches(schema, rows()), counted

    @contextmanager
    def _opened(self, key: str) -> Iterator[pa.RecordBatchReader]:
        with local_disk(), tempfile.TemporaryDirectory(prefix="statefulspark-rows-") as folder:
            path = Path(folder) / "rows"
            self._store.get_file(key, path)
            try:
                if key.lower().endswith(_PARQUET):
                    with pq.ParquetFile(path) as file:
                        yield pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(_ROWS))
                else:
                    options = pj.ParseOptions(explicit_schema=self._columns)
                    with pj.open_json(path, parse_options=options) as reader:
                        yield reader
            except pa.ArrowNotImplementedError:
                raise InvalidInputError(
                    f"{key} has a column of a type that its format does not have", field="rows", remedy="Write the rows as Parquet"
                ) from None
            except pa.ArrowException:
                # Arrow's message may have values.
                raise InvalidInputError(
                    f"{key} is not sound, or has values of other types than its columns have",
                    field="rows",
                    remedy="Write the file again, with the types of the state",
                ) from None
