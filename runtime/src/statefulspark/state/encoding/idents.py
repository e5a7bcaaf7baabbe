"""Idents: the bytes by which a slot knows a key in memory, its key group before its own bytes."""

from __future__ import annotations

from collections.abc import Iterable

from statefulspark.errors import InvalidInputError
from statefulspark.keygroups import KeyGroupRange
from statefulspark.state.encoding.layout import group_prefix

__all__ = ["Idents", "key_group_of_ident"]


class Idents:
    """Makes idents: two bytes of key group, then the key's bytes.

    Args:
        key_groups: The slot's.
    """

    def __init__(self, key_groups: KeyGroupRange) -> None:
        self._prefixes = {group: group_prefix(group) for group in range(key_groups.first, key_groups.last + 1)}

    def of(self, key_group: int, key_bytes: bytes) -> bytes:
        """Return the ident of a key; InvalidInputError if the key group is not the slot's."""
        return self.of_all([(key_group, key_bytes)])[0]

    def of_all(self, keys: Iterable[tuple[int, bytes]]) -> list[bytes]:
        """Return the idents of keys, given by key group and bytes; InvalidInputError if a key group is not the slot's."""
        prefixes = self._prefixes
        try:
            return [prefixes[key_group] + key_bytes for key_group, key_bytes in keys]
        except KeyError as error:
            raise InvalidInputError(f"key group {error.args[0]} is not one of this slot's", field="key group") from None


def key_group_of_ident(ident: bytes) -> int:
    """Return the key group that an ident begins with."""
    return int.from_bytes(ident[:2], "big")
