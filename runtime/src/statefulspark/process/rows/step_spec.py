"""StepSpec: everything a slot needs to run one keyed step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT
from statefulspark.process.api.co_functions import StepFunction, check_function
from statefulspark.process.batches.functions import BatchKeyedProcessFunction
from statefulspark.process.output.side_outputs import SideOutput, check_side_outputs, tagged_schema
from statefulspark.process.rows.columns import check_event_time, check_representable
from statefulspark.process.rows.keytypes import key_type_info
from statefulspark.process.rows.latest_by_value import check_value_columns
from statefulspark.process.rows.reserved_columns import PART, RESERVED
from statefulspark.process.runner.broadcast_states import check_descriptors
from statefulspark.process.runner.checkpointed_functions import check_interfaces
from statefulspark.state.api.descriptors import MapStateDescriptor

__all__ = ["InputSpec", "StepSpec", "idle_afters_ms", "steps_before", "watermark_columns"]


@dataclass(frozen=True)
class InputSpec:
    """One input of a keyed step."""

    schema: pa.Schema
    """The user's columns, without the columns of the exchange."""
    key_columns: tuple[str, ...]
    event_time: str | None = None
    """A timestamp column, or a bigint column of milliseconds since the epoch; None if the input has no event time."""
    watermark_delay_ms: int | None = 0
    """Delay of the input's watermark behind its latest event time, in milliseconds; None if its watermark is that of the steps before."""
    watermark_by: tuple[str, ...] = ()
    """Columns whose values each have a latest event time, of which the watermark follows the smallest; empty if it follows the greatest of all rows."""


@dataclass(frozen=True)
class StepSpec:
    """One keyed step, checked where it is made, so that mistakes show in the driver and not in a slot.

    Travels to the slots with cloudpickle.

    Raises:
        InvalidInputError: a column, type or number does not fit; names the field and the remedy.
    """

    uid: str
    """The stable name of the step; its state is found by it."""
    function: StepFunction
    input_schema: pa.Schema
    """The user's columns, without the hash and source columns of the exchange."""
    output_schema: pa.Schema
    key_columns: tuple[str, ...]
    event_time: str | None
    """A timestamp column, or a bigint column of milliseconds since the epoch; None when the step has no event time."""
    watermark_delay_ms: int | None
    """Delay of the watermark behind the latest event time, in milliseconds; None if the watermark is that of the steps before."""
    max_parallelism: int
    """Number of key groups, 1..32768."""
    side_outputs: tuple[SideOutput, ...] = ()
    """The outputs that rows are yielded to with a tag."""
    second: InputSpec | None = None
    """The second input of a step with two; the fields above describe the first. Without key columns if it is a broadcast stream."""
    broadcast: tuple[MapStateDescriptor, ...] = ()
    """The broadcast states of a step whose second input is a broadcast stream."""
    after: tuple[str, ...] = ()
    """Uids of the steps whose watermarks the step's own never passes: those with a watermark that rows of its inputs with event time come from."""
    idle_after_ms: int | None = None
    """Time without rows, in milliseconds, after which an input, or a value of ``watermark_by``, does not hold the watermark any more; None if it
    always does."""
    watermark_by: tuple[str, ...] = ()
    """As in `InputSpec`, of the first input."""

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Its inputs, one or two."""
        first = InputSpec(self.input_schema, self.key_columns, self.event_time, self.watermark_delay_ms, self.watermark_by)
        return (first,) if self.second is None else (first, self.second)

    @property
    def delays_ms(self) -> tuple[int | None, ...]:
        """Watermark delay of each input in milliseconds, None for an input without event time or watermark of its own."""
        return tuple(None if each.event_time is None else each.watermark_delay_ms for each in self.inputs)

    @property
    def has_event_time(self) -> bool:
        """True if one of its inputs has event time."""
        return any(each.event_time is not None for each in self.inputs)

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the record batches that a slot sends back: the output schema, or a struct column per output."""
        return tagged_schema(self.output_schema, self.side_outputs) if self.side_outputs else self.output_schema

    def __post_init__(self) -> None:
        if not self.uid:
            raise InvalidInputError("is empty", field="uid", remedy="Give the step a stable name")
        check_function(self.function, inputs=len(self.inputs), field="function", broadcast=bool(self.broadcast))
        check_interfaces(self.function)
        for each in self.inputs:
            _check_input(each, keyed=not (self.broadcast and each is self.second))
        if self.broadcast:
            check_descriptors(self.broadcast)
        elif self.second is not None:
            check_inputs_fit(*self.inputs)
        if not len(self.output_schema):
            raise InvalidInputError("has no columns", field="output_type", remedy="Name the columns of the rows the function yields")
        if len(set(self.output_schema.names)) != len(self.output_schema):
            raise InvalidInputError("has two columns of one name", field="output_type", remedy="Rename one of them")
        check_side_outputs(self.uid, self.side_outputs)
        if self.side_outputs and isinstance(self.function, BatchKeyedProcessFunction):
            raise InvalidInputError(
                f"the step {self.uid!r} has a batch function, which has one output",
                field="side_outputs",
                remedy="Filter its output, or use a KeyedProcessFunction",
            )
        if not 1 <= self.max_parallelism <= MAX_PARALLELISM_LIMIT:
            raise InvalidInputError(
                f"{self.max_parallelism} is out of range", field="max_parallelism", remedy=f"Choose 1 to {MAX_PARALLELISM_LIMIT}"
            )


def steps_before(steps: Iterable[StepSpec]) -> dict[str, tuple[str, ...]]:
    """Return the uids of the steps before each step that comes after others."""
    return {step.uid: step.after for step in steps if step.after}


def idle_afters_ms(steps: Iterable[StepSpec]) -> dict[str, int]:
    """Return the times without rows after which an input is idle, by uid of the steps that have one."""
    return {step.uid: step.idle_after_ms for step in steps if step.idle_after_ms is not None}


def watermark_columns(steps: Iterable[StepSpec]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the columns of ``watermark_by`` of each input, by uid of the steps that have some."""
    return {step.uid: columns for step in steps if any(columns := tuple(each.watermark_by for each in step.inputs))}


def _check_input(spec: InputSpec, *, keyed: bool) -> None:
    if keyed and not spec.key_columns:
        raise InvalidInputError("is empty", field="key_columns", remedy="Pass at least one column to key by")
    for name in spec.key_columns:
        key_type_info(_column(spec, "key_columns", name).type, name)
    for column in spec.schema:
        check_representable(column.type, column.name)
    if spec.event_time is not None:
        check_event_time(_column(spec, "event_time", spec.event_time).type, spec.event_time)
    for name in (*RESERVED, *(() if keyed else (PART,))):
        if name in spec.schema.names:
            raise InvalidInputError(f"column {name!r} is reserved", field="input_schema", remedy="Rename the column")
    if spec.watermark_delay_ms is not None and spec.watermark_delay_ms < 0:
        raise InvalidInputError(f"{spec.watermark_delay_ms} ms is negative", field="watermark", remedy="Give 0 or more")
    check_value_columns(
        spec.schema, spec.watermark_by, has_event_time=spec.event_time is not None, has_watermark=spec.watermark_delay_ms is not None
    )


def check_inputs_fit(first: InputSpec, second: InputSpec) -> None:
    """Check that equal keys of two inputs have equal state, and that their event times can be compared.

    Raises:
        InvalidInputError: Keys or event times differ in number or type.
    """
    if len(first.key_columns) != len(second.key_columns):
        raise InvalidInputError(
            f"the key of the first input has {len(first.key_columns)} columns, and that of the second {len(second.key_columns)}",
            field="connect",
            remedy="Key both streams by the same columns",
        )
    for one, other in zip(first.key_columns, second.key_columns, strict=True):
        kind, other_kind = first.schema.field(one).type, second.schema.field(other).type
        if kind != other_kind:
            raise InvalidInputError(
                f"the key column {one!r} of the first input is {kind}, and {other!r} of the second is {other_kind}",
                field="connect",
                remedy="Cast one of them, so that equal keys have equal state",
            )
    if first.event_time is not None and second.event_time is not None:
        kind, other_kind = first.schema.field(first.event_time).type, second.schema.field(second.event_time).type
        if kind != other_kind:
            raise InvalidInputError(
                f"column {second.event_time!r} is {other_kind}, and event_time1 is {kind}", field="event_time2", remedy="Cast one of them"
            )


def _column(spec: InputSpec, field: str, name: str) -> pa.Field:
    names = spec.schema.names
    if names.count(name) != 1:
        found = "occurs more than once" if name in names else "does not exist"
        raise InvalidInputError(f"column {name!r} {found}", field=field, remedy=f"The input has: {', '.join(names)}")
    return spec.schema.field(name)
