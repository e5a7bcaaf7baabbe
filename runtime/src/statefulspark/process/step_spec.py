"""StepSpec: everything a slot needs to run one keyed step."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.keygroups import MAX_PARALLELISM_LIMIT
from statefulspark.process.checkpointed_functions import check_interfaces
from statefulspark.process.columns import check_event_time
from statefulspark.process.functions import KeyedProcessFunction
from statefulspark.process.keytypes import key_type_info
from statefulspark.process.reserved_columns import RESERVED
from statefulspark.process.side_outputs import SideOutput, check_side_outputs, tagged_schema

__all__ = ["StepSpec"]


@dataclass(frozen=True)
class StepSpec:
    """One keyed step, checked where it is made, so that mistakes show in the driver and not in a slot.

    Travels to the slots with cloudpickle.

    Raises:
        InvalidInputError: a column, type or number does not fit; names the field and the remedy.
    """

    uid: str
    """The stable name of the step; its state is found by it."""
    function: KeyedProcessFunction
    input_schema: pa.Schema
    """The user's columns, without the hash and source columns of the exchange."""
    output_schema: pa.Schema
    key_columns: tuple[str, ...]
    event_time: str | None
    """A timestamp column, or a bigint column of milliseconds since the epoch; None when the step has no event time."""
    watermark_delay_ms: int
    """Delay of the watermark behind the latest event time, in milliseconds."""
    max_parallelism: int
    """Number of key groups, 1..32768."""
    side_outputs: tuple[SideOutput, ...] = ()
    """The outputs that rows are yielded to with a tag."""

    @property
    def result_schema(self) -> pa.Schema:
        """Schema of the record batches that a slot sends back: the output schema, or a struct column per output."""
        return tagged_schema(self.output_schema, self.side_outputs) if self.side_outputs else self.output_schema

    def __post_init__(self) -> None:
        if not self.uid:
            raise InvalidInputError("is empty", field="uid", remedy="Give the step a stable name")
        if not callable(getattr(self.function, "process_element", None)):
            raise InvalidInputError(
                f"{type_name(type(self.function))} has no process_element",
                field="function",
                remedy="Pass an instance of a KeyedProcessFunction",
            )
        check_interfaces(self.function)
        if not self.key_columns:
            raise InvalidInputError("is empty", field="key_columns", remedy="Pass at least one column to key by")
        for name in self.key_columns:
            key_type_info(self._column("key_columns", name).type, name)
        if self.event_time is not None:
            check_event_time(self._column("event_time", self.event_time).type, self.event_time)
        for name in RESERVED:
            if name in self.input_schema.names:
                raise InvalidInputError(f"column {name!r} is reserved", field="input_schema", remedy="Rename the column")
        if not len(self.output_schema):
            raise InvalidInputError("has no columns", field="output_type", remedy="Name the columns of the rows the function yields")
        if len(set(self.output_schema.names)) != len(self.output_schema):
            raise InvalidInputError("has two columns of one name", field="output_type", remedy="Rename one of them")
        check_side_outputs(self.uid, self.side_outputs)
        if self.watermark_delay_ms < 0:
            raise InvalidInputError(f"{self.watermark_delay_ms} ms is negative", field="watermark", remedy="Give 0 or more")
        if not 1 <= self.max_parallelism <= MAX_PARALLELISM_LIMIT:
            raise InvalidInputError(
                f"{self.max_parallelism} is out of range", field="max_parallelism", remedy=f"Choose 1 to {MAX_PARALLELISM_LIMIT}"
            )

    def _column(self, field: str, name: str) -> pa.Field:
        if self.input_schema.names.count(name) != 1:
            found = "occurs more than once" if name in self.input_schema.names else "does not exist"
            raise InvalidInputError(f"column {name!r} {found}", field=field, remedy=f"The input has: {', '.join(self.input_schema.names)}")
        return self.input_schema.field(name)
