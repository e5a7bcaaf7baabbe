"""Adds states with given rows to the contents of a savepoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.types as pt

from statefulspark.checkpoint.formats.metadata import CheckpointMetadata, OperatorFile, SlotState
from statefulspark.checkpoint.formats.pipeline import WIDENED, KeyColumn, Pipeline, StepKey
from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import ranges
from statefulspark.process.rows.keytypes import key_type_info
from statefulspark.state.api.names import check_uid
from statefulspark.state.encoding.keys import KeyCodec
from statefulspark.state.encoding.layout import STATE_ID_MAX, StateInfo, key_group_range_bounds
from statefulspark.state.operator.entries import is_operator_state
from statefulspark.state.store.base import StoredEntries
from statefulspark.state.tables.raw_keyed import RAW_KEYED
from statefulspark.state_tables.bootstrap.declarations import Declaration
from statefulspark.state_tables.bootstrap.given_rows import ArrowRows, GivenRows, Rows, is_spark_frame, same_key, without_number
from statefulspark.state_tables.bootstrap.state_rows import StateRows, batch_reader
from statefulspark.state_tables.write.changes import check_new_name
from statefulspark.state_tables.write.contents import Contents
from statefulspark.state_tables.write.sorted_entries import Entry, SlotBySlot, SortedEntries, written_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SLOTS_OF_NEW: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class NewState:
    """Rows for one state.

    Attributes:
        uid: The keyed step, as the new savepoint names it.
        declared: As the job declares the state.
        rows: A column per part of the key and of the value.
        key_columns: Names of the key columns, in the order of the step's key.
        merge: True if the state exists, and rows replace what it has of their keys.
    """

    uid: str
    declared: Declaration
    rows: Rows
    key_columns: tuple[str, ...]
    merge: bool = False
    _taken: threading.Event = field(default_factory=threading.Event)

    def given(self) -> GivenRows:
        """Return the rows.

        Raises:
            InvalidInputError: Neither Arrow nor Spark can read them, or they are a reader that was read before and has none left.
        """
        if is_spark_frame(self.rows):
            from statefulspark.state_tables.bootstrap.spark_rows import SparkRows  # noqa: PLC0415  pyspark takes seconds to import

            return SparkRows(cast("DataFrame", self.rows))
        if isinstance(self.rows, pa.RecordBatchReader) and self._taken.is_set():
            raise InvalidInputError(
                "the RecordBatchReader was read by another write", field="rows", remedy="Pass a new one, or a pyarrow Table"
            )
        self._taken.set()
        return ArrowRows(batch_reader(self.rows))


def new_metadata(name: str, max_parallelism: int) -> CheckpointMetadata:
    """Return the metadata of a savepoint of no job, as before its first batch."""
    now_ms = int(time.time() * 1000)
    parallelism = min(_SLOTS_OF_NEW, max_parallelism)
    slots = tuple(
        SlotState(slot=number, first=groups.first, last=groups.last, backend="memory")
        for number, groups in enumerate(ranges(parallelism, max_parallelism))
    )
    return CheckpointMetadata(
        job_id=name,
        job_name=name,
        checkpoint_id=0,
        kind="savepoint",
        attempt=0,
        batch=-1,
        max_parallelism=max_parallelism,
        parallelism=parallelism,
        created_ms=now_ms,
        duration_ms=0,
        slots=slots,
        processing_time_ms=now_ms,
        pipeline=Pipeline(),
    )


class NoContents:
    """The contents of a savepoint without states; `Contents` says what the methods do."""

    def opened(self, slot: SlotState) -> AbstractContextManager[StoredEntries]:  # noqa: ARG002  every slot is empty
        return written_entries(iter(()))

    def changed_operator_file(self, file: OperatorFile) -> bytes | None:  # noqa: ARG002  there is none
        return None


class BootstrapContents:
    """Contents with added states; `Contents` says what the methods do.

    Args:
        contents: What the rows are added to.
        added: Store keys, and the number of the row before each value.
        lists: Ids of the added list states, of which a new entry replaces the segments of the old one too.
    """

    def __init__(self, contents: Contents, added: SortedEntries, lists: frozenset[int]) -> None:
        self._contents = contents
        self._added = added
        self._lists = lists
        self._slots: SlotBySlot | None = None

    @contextmanager
    def opened(self, slot: SlotState) -> Iterator[StoredEntries]:
        if self._slots is None:
            self._slots = SlotBySlot(_distinct(iter(self._added)))
        with ExitStack() as stack:
            store = stack.enter_context(self._contents.opened(slot))
            old = store.scan(*key_group_range_bounds(slot.first, slot.last))
            yield stack.enter_context(written_entries(_overlaid(old, self._slots.of(slot), self._lists)))

    def changed_operator_file(self, file: OperatorFile) -> bytes | None:
        return self._contents.changed_operator_file(file)


def planned(metadata: CheckpointMetadata, state: NewState, state_id: int, schema: pa.Schema) -> tuple[CheckpointMetadata, StateRows]:
    """Return the metadata with a state, and what encodes its rows.

    Args:
        metadata: Of the savepoint, with all states before this one.
        state: The state.
        state_id: For the state, if it is new.
        schema: Of the rows.

    Raises:
        InvalidInputError: The state exists or does not, contrary to ``merge``, or its declaration, key or columns do not fit.
    """
    check_uid(state.uid)
    step, codec = _step_key(state, schema)
    known_step = metadata.pipeline.step(state.uid) if metadata.pipeline is not None else None
    infos = [info for info in map(StateInfo.from_json, metadata.states) if info.uid == state.uid]
    if metadata.pipeline is None or (known_step is None and infos) or (known_step is not None and not step.finds_state_of(known_step)):
        stored = "nothing" if known_step is None else str(known_step)
        raise InvalidInputError(
            f"the key of uid {state.uid!r} is {step} in the rows, and the savepoint says {stored}",
            field="key_columns",
            remedy="Name and cast the columns as the step has them, or remove the uid",
        )
    info, is_new = _info(state, codec, infos, state_id)
    rows = StateRows(
        info=info,
        step=known_step or step,
        key_columns=state.key_columns,
        max_parallelism=metadata.max_parallelism,
        expires_ms=metadata.processed_ms + (info.ttl_ms or 0),
    )
    rows.check_columns(schema.names)
    if not is_new:
        return metadata, rows
    steps = metadata.pipeline.steps if known_step is not None else (*metadata.pipeline.steps, step)
    slots = tuple(_with_batch(slot, state.uid, metadata.batch) for slot in metadata.slots)
    update = {
        "states": (*metadata.states, info.to_json()),
        "slots": slots,
        "pipeline": metadata.pipeline.model_copy(update={"steps": steps}),
    }
    return metadata.model_copy(update=update), rows


def next_state_id(*documents: CheckpointMetadata) -> int:
    """Return an id that no state of these documents has.

    Raises:
        InvalidInputError: All are used up.
    """
    found = 1 + max((StateInfo.from_json(state).state_id for each in documents for state in each.states), default=0)
    if found > STATE_ID_MAX:
        raise InvalidInputError(f"a job has at most {STATE_ID_MAX} states", field="state")
    return found


def _step_key(state: NewState, schema: pa.Schema) -> tuple[StepKey, KeyCodec]:
    """Return the key that the rows have, as a job with these columns declares it."""
    columns, types = [], []
    for name in state.key_columns:
        if schema.names.count(name) != 1:
            raise InvalidInputError(
                f"expected one column {name!r}", field="key_columns", remedy=f"Name columns of {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        types.append(key_type_info(kind, name))
        columns.append(KeyColumn(name=name, type=_spark_type(kind)))
    if not columns:
        raise InvalidInputError("there are none", field="key_columns", remedy="Name the columns by which the step is keyed")
    return StepKey(uid=state.uid, hashing=WIDENED, columns=tuple(columns)), KeyCodec(types)


def _spark_type(kind: pa.DataType) -> str:
    """Return Spark's name of the type of a key column, which `key_type_info` has accepted."""
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pt.is_integer(kind):
        return "bigint"
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return "binary"
    if pt.is_date(kind):
        return "date"
    return "boolean" if pt.is_boolean(kind) else "string"


def _info(state: NewState, codec: KeyCodec, infos: list[StateInfo], state_id: int) -> tuple[StateInfo, bool]:
    """Return the state, and True if it is new."""
    declared = state.declared
    wanted = StateInfo(state_id, state.uid, declared.name, declared.kind, codec.to_json(), declared.type.to_json(), declared.ttl_ms)
    where = f"state {declared.name!r} of uid {state.uid!r}"
    keyed = next((info for info in infos if not is_operator_state(info) and info.kind != RAW_KEYED), None)
    if keyed is not None and keyed.key_type != wanted.key_type:
        raise InvalidInputError("its keys are not of the types that the step has", field=where, remedy="Cast the key columns")
    known = next((info for info in infos if info.name == declared.name), None)
    if known is None:
        if state.merge:
            raise InvalidInputError("there is no such state to merge with", field=where, remedy="Leave merge out")
        check_new_name(declared.name)
        return wanted, True
    if not state.merge:
        raise InvalidInputError("it exists", field=where, remedy="Pass merge=True, or remove the state with remove_state")
    same = replace(known, ttl_ms=declared.ttl_ms, segmented=False, schemas=()) == replace(wanted, state_id=known.state_id)
    if not same or (known.ttl_ms is None) != (declared.ttl_ms is None) or known.schemas:
        raise InvalidInputError(
            "it is stored with another declaration, or has evolved",
            field=where,
            remedy="Declare it as it is stored, or replace it as a whole",
        )
    return known, False


def _with_batch(slot: SlotState, uid: str, batch: int) -> SlotState:
    return slot.model_copy(update={"operator_batches": {uid: batch, **slot.operator_batches}})


def _distinct(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield entries without the numbers of their rows; raises InvalidInputError if two have one key."""
    last: Entry | None = None
    for entry in entries:
        if last is not None and last[0] == entry[0]:
            raise same_key(last[1], entry[1])
        last = entry
        yield entry[0], without_number(entry[1])


def _overlaid(old: Iterator[Entry], new: Iterator[Entry], lists: frozenset[int]) -> Iterator[Entry]:
    """Merge sorted entries: of two with one key the new one counts, and a new list replaces the segments of the old one."""
    waiting = next(new, None)
    head: bytes | None = None

    def is_replaced(key: bytes) -> bool:
        return (waiting is not None and waiting[0] == key) or (head is not None and key.startswith(head))

    for entry in old:
        while waiting is not None and waiting[0] < entry[0]:
            head = waiting[0] if int.from_bytes(waiting[0][2:4], "big") in lists else None
            yield waiting
            waiting = next(new, None)
        if not is_replaced(entry[0]):
            yield entry
    while waiting is not None:
        yield waiting
        waiting = next(new, None)
