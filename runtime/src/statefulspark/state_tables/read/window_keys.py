"""The keys of the map states in which windows keep their contents: a window's bytes, then a number or the key of a map."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from statefulspark.process.windows.windows import CountWindowSerializer, GlobalWindowSerializer, TimeWindowSerializer, WindowSerializer
from statefulspark.state.encoding.layout import StateInfo
from statefulspark.state_tables.read.arrays import binary_array
from statefulspark.state_tables.read.columns import BYTES
from statefulspark.state_tables.read.payloads import Integers, Payloads

_NAME: Final = re.compile(
    r"(?P<owner>_window_next|_window_states|_trigger_states|_window|_window\.trigger|_window\.window)"
    r"\((?:Merging)?(?P<window>TimeWindow|CountWindow|GlobalWindow)(?: [\d/]+)?, (?P<contents>reduced|aggregated|list|evicted)(?:, .*)?\)",
    re.DOTALL,
)
"""Names of these states (`docs/formats.md`)."""
_SERIALIZERS: Final[dict[str, type[WindowSerializer]]] = {
    "TimeWindow": TimeWindowSerializer,
    "CountWindow": CountWindowSerializer,
    "GlobalWindow": GlobalWindowSerializer,
}
_COLUMNS: Final = {"TimeWindow": ("window_start_ms", "window_end_ms"), "CountWindow": ("window_id",), "GlobalWindow": ()}
_SIGN: Final = np.uint64(1 << 63)
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class WindowKeys:
    """Turns the keys of one such state into columns.

    Attributes:
        window: Kind of the windows.
        rest: Column of what follows the window: ``element``, ``map_key`` or None for nothing.
    """

    window: str
    rest: str | None

    @classmethod
    def of(cls, info: StateInfo) -> WindowKeys | None:
        """Return the reader of a window state's keys, or None for other states."""
        named = _NAME.fullmatch(info.name)
        if named is None or info.kind != "map" or info.type["key"] != BYTES:
            return None
        rest = None
        if named["owner"] == "_window" and named["contents"] in ("list", "evicted"):
            rest = "element"
        elif named["owner"].startswith("_window."):
            rest = "map_key"
        return cls(named["window"], rest)

    def fields(self) -> list[pa.Field]:
        """Return the columns."""
        found = [pa.field(name, pa.int64()) for name in _COLUMNS[self.window]]
        if self.rest is not None:
            found.append(pa.field(self.rest, pa.int64() if self.rest == "element" else pa.binary()))
        return found

    def split(self, key: bytes) -> tuple[dict[str, int], bytes]:
        """Return the columns of the window of one key, and the bytes of what follows it.

        Raises:
            ValueError: The key is not of such a window.
        """
        width = _SERIALIZERS[self.window].width
        if len(key) < width:
            raise ValueError("too short")
        numbers = (int.from_bytes(key[at : at + _NUMBER_BYTES], "big") - (1 << 63) for at in range(0, width, _NUMBER_BYTES))
        return dict(zip(_COLUMNS[self.window], numbers, strict=True)), key[width:]

    def arrays(self, keys: Payloads) -> list[pa.Array]:
        """Return an array per column.

        Raises:
            ValueError: The keys are not of such windows.
        """
        width = _SERIALIZERS[self.window].width
        found = [pa.array(_signed(keys.without(at))) for at in range(0, width, _NUMBER_BYTES)]
        rest = keys.without(width)
        if self.rest == "element":
            rest.check_width(_NUMBER_BYTES)
            found.append(pa.array(rest.numbers("i8")))
        elif self.rest == "map_key":
            # A value or a list of a window has no key of a map.
            found.append(binary_array(rest.where(rest.ends > rest.starts)))
        else:
            rest.check_width(0)
        return found


def _signed(numbers: Payloads) -> Integers:
    flipped: np.ndarray[Any, Any] = numbers.numbers("u8") ^ _SIGN
    return flipped.view(np.int64)
