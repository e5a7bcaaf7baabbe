"""The data source ``statefulspark`` of Spark: a state of a checkpoint or savepoint as a DataFrame, a partition per slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.decoding import parse_keys
from statefulspark.errors import InvalidInputError
from statefulspark.state.store.own_backend import trust_backend
from statefulspark.state.types.arrow_types import Conversions
from statefulspark.state_tables.read.reading import StateReader
from statefulspark.storage.open import open_store
from statefulspark.storage.storage_settings import StorageSettings

FORMAT: Final = "statefulspark"
_STORAGE_OPTIONS: Final[Mapping[str, str]] = {"endpoint": "endpoint", "region": "region", "caBundle": "ca_bundle"}
_FLAGS: Final = ("includeExpired", "withExpiry", "unpickle", "decimalsAsText")
_OPTIONS: Final = ("uid", "state", "path", "keys", "backend", *_FLAGS, *_STORAGE_OPTIONS, "pathStyle")
_BOOLEANS: Final = {"true": True, "false": False}


class StateDataSource(DataSource):
    """Reads the option ``state`` of the step ``uid`` at the path; docs/state-tables.md lists the other options."""

    storage: ClassVar[StorageSettings] = StorageSettings()

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(_opened(self.options, self.storage, self.options.get("path", "")).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(dict(self.options), self.storage, schema)


class TableReader(DataSourceReader):
    """Plans the partitions on the driver and reads them on the executors.

    It takes no filters from Spark: Spark 4.3 plans one ``load()`` once and goes on with the partitions that the filter of an earlier query has
    left, also within a union or a join. The option ``keys`` holds for all queries.

    Args:
        options: Of the data source.
        storage: What options do not say.
        schema: Of the DataFrame.
    """

    def __init__(self, options: Mapping[str, str], storage: StorageSettings, schema: StructType) -> None:
        self._options = options
        self._storage = storage
        self._schema = schema
        # The newest checkpoint of a job's folder is another one soon: executors read the one that was planned.
        self._url = _checkpoint_url(options, storage)

    def partitions(self) -> Sequence[InputPartition]:
        reader, keys = self._reader(), _named(self._options).get("keys")
        return [InputPartition(part) for part in reader.parts(None if keys is None else parse_keys(reader.info, keys))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's stand-in when there is no partition
            return
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for batch in self._reader().batches(partition.value):
            columns = [array if array.type == field.type else array.cast(field.type) for array, field in zip(batch, wanted, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _reader(self) -> StateReader:
        return _opened(self._options, self._storage, self._url)


def register_in(spark: SparkSession, storage: StorageSettings) -> None:
    """Register the data source with a session; see `statefulspark.state_tables.register`."""

    # A class of its own is pickled with its attributes; one that can be imported would come without them.
    class Configured(StateDataSource):
        pass

    Configured.storage = storage
    spark.dataSource.register(Configured)


def _opened(options: Mapping[str, str], storage: StorageSettings, url: str) -> StateReader:
    given = _named(options)
    missing = [name for name in ("uid", "state", "path") if not given.get(name)]
    if missing:
        raise InvalidInputError(
            "is missing", field=f"option {missing[0]!r}", remedy='Read with .option("uid", …).option("state", …).load(path)'
        )
    flags = {name: _flag(given, name) for name in _FLAGS}
    if "backend" in given:
        trust_backend(given["backend"])  # in each process: executors read
    return StateReader(
        open_checkpoint(url, _opener(given, storage)),
        given["uid"],
        given["state"],
        include_expired=flags["includeExpired"] or False,
        with_expiry=flags["withExpiry"] or False,
        conversions=Conversions(unpickle=flags["unpickle"] or False, decimals_as_text=flags["decimalsAsText"] or False),
    )


def _checkpoint_url(options: Mapping[str, str], storage: StorageSettings) -> str:
    given = _named(options)
    return open_checkpoint(given["path"], _opener(given, storage)).url


def _opener(given: Mapping[str, str], storage: StorageSettings) -> Callable[[str], Any]:
    changed: dict[str, Any] = {ours: given[option] for option, ours in _STORAGE_OPTIONS.items() if option in given}
    path_style = _flag(given, "pathStyle")
    if path_style is not None:
        changed["path_style"] = path_style
    return partial(open_store, settings=replace(storage, **changed))


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their names, of which Spark keeps the small letters only."""
    names = {name.lower(): name for name in _OPTIONS}
    unknown = sorted(set(map(str.lower, options)) - names.keys())
    if unknown:
        remedy = f"Use {', '.join(_OPTIONS)}. Credentials belong in state_tables.register(spark, storage=…)"
        raise InvalidInputError("there is no such option", field=f"option {unknown[0]!r}", remedy=remedy)
    return {names[name.lower()]: value for name, value in options.items()}


def _flag(given: Mapping[str, str], name: str) -> bool | None:
    if name not in given:
        return None
    found = _BOOLEANS.get(given[name].lower())
    if found is None:
        raise InvalidInputError("is neither true nor false", field=f"option {name!r}", remedy="Write true or false")
    return found
