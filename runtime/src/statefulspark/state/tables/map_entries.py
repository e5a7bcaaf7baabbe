"""The stored entries of a map: reading them in order, and decoding what was read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from statefulspark.errors import CorruptDataError, InvalidInputError
from statefulspark.state.encoding.layout import prefix_end
from statefulspark.state.store.layers import Layers
from statefulspark.state.types.base import TypeInformation

_CHUNK_ENTRIES: Final = 256


def stored_entries(layers: Layers, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the entries of one key below the changed ones; no iterator of the store stays open while the caller runs.

    Args:
        layers: The backend's.
        prefix: Store key of the map.
        start: Only entries whose user keys begin with these bytes.

    Yields:
        User key, stored bytes, and after how many spills they were read.
    """
    first, end = prefix + start, prefix_end(prefix + start)
    while True:
        spills = layers.spills
        chunk = list(islice(layers.scan(first, end), _CHUNK_ENTRIES))
        for store_key, data in chunk:
            yield store_key[len(prefix) :], data, spills
        if len(chunk) < _CHUNK_ENTRIES:
            return
        first = chunk[-1][0] + b"\0"


def converted(restored: Callable[[bytes], Any], data: bytes, *, keys_only: bool) -> Any:
    """Return the entry of stored bytes.

    Args:
        restored: Makes the entry.
        data: The stored bytes.
        keys_only: A value that cannot be converted to the declared type is None, because nobody reads it.
    """
    try:
        return restored(data)
    except InvalidInputError:
        if keys_only:
            return None
        raise


def decoded_key(key_type: TypeInformation, user_key: bytes, where: str) -> Any:
    """Return a user key; ``where`` names the state in errors."""
    try:
        return key_type.decode(user_key)
    except InvalidInputError as error:
        raise InvalidInputError(error.message, field=f"map key of {where}", remedy=error.remedy) from error
    except (ValueError, IndexError, struct.error, OverflowError) as error:
        raise CorruptDataError("damaged map key", path=where) from error
