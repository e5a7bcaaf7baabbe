"""Tells stored states that the runtime made from those that functions declared.

A name alone does not: releases before names were reserved (`names.is_reserved`) let functions declare a state of any name. Such a state is of another
kind or its name does not end as the runtime's do, so it counts as the function's, and can be renamed or removed in a savepoint.
"""

from __future__ import annotations

import re
from typing import Final

from statefulspark.state.encoding.layout import StateInfo

__all__ = ["is_of_late_declaration", "is_of_windows"]

_LATE: Final = re.compile(r"_window\.(?:trigger|window)\(.*\)", re.DOTALL)
_MAPS: Final = re.compile(r"_(?:window|window_next|window_timers|window_states|trigger_states)\(.*\)", re.DOTALL)
_VALUES: Final = re.compile(r"_(?:merging_windows|sessions)\(.*\)|_assigner\(count\)", re.DOTALL)


def is_of_late_declaration(info: StateInfo) -> bool:
    """Return True for a state of a trigger or of ``window_state()``. Windows declare it when they first need it.

    So it means nothing that such a state is new, or that a restored one is not declared yet.
    """
    return info.kind == "map" and _LATE.fullmatch(info.name) is not None


def is_of_windows(info: StateInfo) -> bool:
    """Return True for the states that the windows of a step consist of. They belong together, and with the timers of the step."""
    if info.kind == "value":
        return _VALUES.fullmatch(info.name) is not None
    return is_of_late_declaration(info) or (info.kind == "map" and _MAPS.fullmatch(info.name) is not None)
