"""Addresses that are never a store: of the machine itself, of the link, and of cloud metadata services. Pure: nothing is resolved."""

from __future__ import annotations

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
METADATA: Final = frozenset(ipaddress.ip_address(each) for each in ("100.100.100.200", "fd00:ec2::254", "168.63.129.16", "192.0.0.192"))
"""Metadata services outside of the link-local range."""
_TRANSLATED: Final = tuple(ipaddress.IPv6Network(each) for each in ("64:ff9b::/96", "::/96"))
"""Networks whose addresses end with one of IPv4: NAT64, and IPv4-compatible ones."""
METADATA_NAMES: Final = ("metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal")


def is_metadata(host: str) -> bool:
    """True for a host at which no store is anywhere: a metadata service, or an address that is link-local, unspecified or multicast."""
    if host.rstrip(".").lower() in METADATA_NAMES:
        return True
    address = address_of(host)
    return address is not None and (address.is_link_local or address.is_unspecified or address.is_multicast or address in METADATA)


def address_of(host: str) -> Address | None:
    """The address that a host is written as, in any way that resolvers take: ``0x7f000001`` and ``127.1`` are 127.0.0.1."""
    host = host.rstrip(".")
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return _old_address(host.lower())
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = int(address) & 0xFFFFFFFF
    if inner > 1 and any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(inner)
    return address.ipv4_mapped or address.sixtofour or address


def _old_address(host: str) -> ipaddress.IPv4Address | None:
    parts = host.split(".")
    try:
        numbers = [int(part, 16 if part.startswith("0x") else 8 if part.startswith("0") and part != "0" else 10) for part in parts]
    except ValueError:
        return None
    if len(numbers) > 4 or any(number > 255 or number < 0 for number in numbers[:-1]):
        return None
    value = sum(number << (24 - 8 * index) for index, number in enumerate(numbers[:-1])) + numbers[-1]
    return ipaddress.IPv4Address(value) if 0 <= value < 1 << 32 else None
