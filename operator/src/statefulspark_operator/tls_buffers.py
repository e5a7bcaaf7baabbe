"""Makes the TLS connections of this process small.

asyncio reads each of them through a buffer of its own of 256 KiB, which is most of a connection's memory; the operator has one to each driver.
"""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol
from typing import Final

BUFFER_BYTES: Final = 16 << 10
"""A TLS record holds at most as much, and one read never returns more than a record."""


def limit_tls_buffers() -> None:
    """Gives connections that are opened from now on a smaller read buffer."""
    SSLProtocol.max_size = BUFFER_BYTES
