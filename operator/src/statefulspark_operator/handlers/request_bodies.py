"""Reads request bodies of unauthenticated clients, bounded in size, in time, and in total memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from statefulspark.errors import InvalidInputError, UnavailableError

BODY_MAX: Final = 4 << 20
"""An AdmissionReview holds two objects, and etcd takes none of more than 1.5 MiB."""
_FREE_BYTES: Final = 256 << 10
"""Bytes of a body that are always accepted, so that ordinary reviews pass while other clients send large ones."""
_SHARED_BYTES: Final = 64 << 20
_READ_S: Final = 5.0


class RequestBodyReader:
    """Reads bodies; large ones share a budget of memory.

    Args:
        deadline_s: From the first wait for a byte to the last byte, however slowly they come.
    """

    def __init__(self, *, deadline_s: float = _READ_S) -> None:
        self._deadline_s = deadline_s
        self._shared = 0

    @contextlib.asynccontextmanager
    async def read(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Reads a body, which counts against the shared memory until the block ends; what is beyond the bound is never taken from ``parts``.

        Raises:
            InvalidInputError: It is too large.
            UnavailableError: It did not come in time, or too many large ones are held.
        """
        body, shared = bytearray(), 0
        try:
            try:
                async with asyncio.timeout(self._deadline_s):
                    async for part in parts:
                        body += part
                        if len(body) > BODY_MAX:
                            raise InvalidInputError(f"the request body exceeds {BODY_MAX >> 20} MiB")
                        more = max(0, len(body) - _FREE_BYTES) - shared
                        self._shared, shared = self._shared + more, shared + more
                        if more and self._shared > _SHARED_BYTES:
                            raise UnavailableError("too many large request bodies are held")
            except TimeoutError as error:
                raise UnavailableError(f"the request body did not arrive within {self._deadline_s:.0f} s") from error
            yield bytes(body)
        finally:
            self._shared -= shared
