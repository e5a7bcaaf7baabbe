"""Checks the descriptors of broadcast states, in the driver."""

from __future__ import annotations

from collections.abc import Sequence

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.state.api.descriptors import MapStateDescriptor

__all__ = ["check_descriptors"]


def check_descriptors(descriptors: Sequence[object]) -> None:
    """Raise unless a broadcast stream can have these states.

    Raises:
        InvalidInputError: There is none, or one of them is no MapStateDescriptor, has a time to live, or has the name of another.
    """
    if not descriptors:
        raise InvalidInputError(
            "no state descriptor", field="broadcast", remedy="Pass at least one MapStateDescriptor: job.broadcast(df, descriptor)"
        )
    seen: set[str] = set()
    for each in descriptors:
        if not isinstance(each, MapStateDescriptor):
            raise InvalidInputError(
                f"expected MapStateDescriptors, got {type_name(type(each))}",
                field="broadcast",
                remedy="Broadcast state is a map: pass a MapStateDescriptor",
            )
        if each.ttl is not None:
            raise InvalidInputError(
                f"the state {each.name!r} has a time to live, which broadcast state cannot have",
                field="broadcast",
                remedy="Remove enable_time_to_live from its descriptor, and remove entries in process_broadcast_element",
            )
        if each.name in seen:
            raise InvalidInputError(f"two states are named {each.name!r}", field="broadcast", remedy="Give each state its own name")
        seen.add(each.name)
