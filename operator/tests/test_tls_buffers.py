"""TLS connections are small, and carry what they carried before."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from datetime import UTC, datetime
from pathlib import Path

import pytest

from statefulspark.config.kubernetes.pods import TLS_SERVER_NAME
from statefulspark_operator.builders.certificates import new_authority, new_certificate
from statefulspark_operator.builders.keys import OperatorKey
from statefulspark_operator.tls_buffers import BUFFER_BYTES, limit_tls_buffers

_BODY = bytes(range(256)) * (1 << 12)


def test_a_connection_has_a_small_buffer_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)  # as it was, for the tests after this one
    limit_tls_buffers()
    now = datetime.now(UTC)
    authority = new_authority("j", OperatorKey(b"k" * 32).authority("u"), now)
    signed = new_certificate(authority, service="j-driver", namespace="n", now=now)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(signed.certificate + signed.key)
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    serving.load_cert_chain(chain)
    trusting.load_verify_locations(cadata=authority.certificate.decode())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(_BODY)))
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.sockets[0].getsockname()[1], ssl=trusting, server_hostname=TLS_SERVER_NAME
        )
        buffers = [value for value in vars(writer.transport._ssl_protocol).values() if isinstance(value, bytearray)]  # type: ignore[attr-defined]
        assert BUFFER_BYTES <= sum(len(each) for each in buffers) < 2 * BUFFER_BYTES
        writer.write(_BODY)
        assert await reader.read() == _BODY
        writer.close()
        server.close()

    asyncio.run(run())
