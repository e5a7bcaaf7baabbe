"""Makes the store keys of many changes at once, in order: one by one, each takes several small objects, and sorting them a call per comparison."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from statefulspark.state.encoding.byte_order import byte_order

__all__ = ["entry_keys", "timer_keys"]

_FEW: Final = 64
"""Fewer are made one by one."""
_BYTES_MAX: Final = 256
"""Longer ones are made one by one, since the others are copied three times."""

_GROUP_OF_IDENT: Final = slice(0, 2)
_KEY_OF_IDENT: Final = slice(2, None)
_TIME_OF_TIMER: Final = slice(0, 8)
_GROUP_OF_TIMER: Final = slice(8, 10)
_KEY_OF_TIMER: Final = slice(10, None)

_Pieces = Sequence[slice | bytes]
"""Pieces of a store key: parts of the given bytes, and constant ones."""


def entry_keys(idents: Sequence[bytes], heads: Mapping[int, bytes]) -> tuple[list[bytes], list[int]]:
    """Return the store keys of entries; see `encoding.layout`.

    Args:
        idents: Of their keys.
        heads: By length of ident, what stands between the key group and the key.

    Returns:
        The store keys, and for each the position of its ident. They are in order if there are many, of one length, and short.
    """
    return _made(idents, lambda length: (_GROUP_OF_IDENT, heads[length], _KEY_OF_IDENT))


def timer_keys(timers: Sequence[bytes], state_id: int) -> tuple[list[bytes], list[int]]:
    """Return the store keys of timers, given as time, key group and key; otherwise as `entry_keys`."""
    state = state_id.to_bytes(2, "big")
    return _made(timers, lambda _: (_GROUP_OF_TIMER, state, _TIME_OF_TIMER, _KEY_OF_TIMER))


def _made(given: Sequence[bytes], pieces_of: Callable[[int], _Pieces]) -> tuple[list[bytes], list[int]]:
    """Make store keys; ``pieces_of`` says of what, by the length of what is given."""
    lengths = set(map(len, given))
    if len(lengths) == 1:
        return _of_one_length(given, pieces_of(lengths.pop()))
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for position, each in enumerate(given):
        by_length[len(each)].append(position)
    keys: list[bytes] = []
    positions: list[int] = []
    for length, chosen in by_length.items():
        made, places = _of_one_length([given[position] for position in chosen], pieces_of(length))
        keys += made
        positions += [chosen[place] for place in places]
    return keys, positions


def _of_one_length(given: Sequence[bytes], pieces: _Pieces) -> tuple[list[bytes], list[int]]:
    count, length = len(given), len(given[0])
    if count < _FEW or length > _BYTES_MAX:
        return [b"".join([piece if isinstance(piece, bytes) else each[piece] for piece in pieces]) for each in given], list(range(count))
    table = np.frombuffer(b"".join(given), dtype=np.uint8).reshape(count, length)
    columns = [
        np.broadcast_to(np.frombuffer(piece, dtype=np.uint8), (count, len(piece))) if isinstance(piece, bytes) else table[:, piece]
        for piece in pieces
    ]
    keys = np.concatenate(columns, axis=1)
    width = keys.shape[1]
    order = byte_order(keys)
    ordered = keys[order].tobytes()
    return [ordered[at : at + width] for at in range(0, len(ordered), width)], order.tolist()
