"""The API over TLS: who trusts the job's authority gets in, nobody else talks to it by mistake, and certificates are renewed under way."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from runtime.tests.api_server.conftest import TOKEN
from runtime.tests.api_server.fake_job import FakeJob
from runtime.tests.certificates import NOW, authority_of, signed_by, write

from statefulspark.api_server.api import create_app
from statefulspark.api_server.client import JobClient
from statefulspark.api_server.server import ApiServer, ServerSettings
from statefulspark.cli.common.connect import connect
from statefulspark.config.kubernetes.pods import TLS_AUTHORITY_FILE, TLS_FOLDER_VARIABLE
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark_operator.builders.certificates import Signed


@pytest.fixture
def authority() -> Signed:
    return authority_of()


@pytest.fixture
def folder(tmp_path: Path, authority: Signed) -> CertificateFolder:
    return write(tmp_path / "tls", authority, signed_by(authority))


@pytest.fixture
def server(folder: CertificateFolder) -> Iterator[ApiServer]:
    settings = ServerSettings(certificates=folder)
    with ApiServer(create_app(FakeJob(), token=TOKEN, clock_ms=lambda: 0), settings) as made:
        yield made


def ca_file(folder: CertificateFolder) -> Path:
    return Path(folder.path) / TLS_AUTHORITY_FILE


def test_the_command_line_finds_the_authority(server: ApiServer, folder: CertificateFolder, tmp_path: Path) -> None:
    """By option, and in a pod of the job without one."""
    assert server.url.startswith("https://127.0.0.1:")
    environ = {"STATEFULSPARK_API_TOKEN": TOKEN}
    with connect(server.url, None, ca_file(folder), environ=environ) as client:
        assert client.status().name
    with connect(server.url, None, environ={**environ, TLS_FOLDER_VARIABLE: folder.path}) as client:
        assert client.status().name


def test_who_does_not_trust_the_authority_sends_no_token(server: ApiServer, tmp_path: Path) -> None:
    """The error names the option; another job's authority is none."""
    other = authority_of("other")
    theirs = write(tmp_path / "theirs", other, signed_by(other))
    for file in (None, ca_file(theirs)):
        with JobClient(server.url, TOKEN, ca_file=file) as client, pytest.raises(InvalidInputError, match="--ca-file"):
            client.status()
    with pytest.raises(InvalidInputError, match="--ca-file"):
        JobClient(server.url, TOKEN, ca_file=tmp_path / "nowhere")


def test_nothing_is_answered_in_clear(server: ApiServer) -> None:
    with JobClient(server.url.replace("https", "http"), TOKEN) as client, pytest.raises(UnavailableError):
        client.status()


def served(server: ApiServer) -> bytes:
    """The certificate that a new connection sees."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = int(server.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain, context.wrap_socket(plain) as secure:
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").encode()


def test_renewed_certificates_come_into_use_without_a_restart(server: ApiServer, folder: CertificateFolder, authority: Signed) -> None:
    """Connections from before go on; files that do not fit each other are not taken."""
    with JobClient(server.url, TOKEN, ca_file=ca_file(folder)) as before:
        assert before.status().name
        assert not server.renew()
        renewed = signed_by(authority, NOW - timedelta(days=1))
        write(Path(folder.path), authority, renewed)
        assert server.renew()
        assert served(server) == renewed.certificate
        write(Path(folder.path), authority, Signed(renewed.certificate, signed_by(authority).key))
        assert not server.renew()
        assert served(server) == renewed.certificate
        assert before.status().name


def test_who_never_begins_the_handshake_is_no_burden(folder: CertificateFolder, server: ApiServer) -> None:
    """300 connections that send nothing at all, or half a greeting."""
    port = int(server.url.rpartition(":")[2])
    with ExitStack() as crowd:
        for first in (b"", b"\x16\x03\x01") * 150:
            connection = crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            connection.sendall(first)
        verify = ssl.create_default_context(cafile=ca_file(folder))
        assert httpx.get(f"{server.url}/healthz", verify=verify, trust_env=False, timeout=5).status_code == 200
        # The first of them is dropped after the time for the handshake.
        oldest = crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        assert oldest.recv(1) == b""
