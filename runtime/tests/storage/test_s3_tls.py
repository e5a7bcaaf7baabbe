"""S3Store over TLS with a private authority, as in-house S3 services have it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from runtime.tests.s3_server import BUCKET
from runtime.tests.storage.flaky_proxy import FlakyProxy

from statefulspark.errors import InvalidInputError
from statefulspark.storage.limits import S3Limits
from statefulspark.storage.s3.store import S3Store
from statefulspark.storage.storage_settings import StorageSettings

PART_BYTES = 5 << 20


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "statefulspark test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def tls_settings(proxy: FlakyProxy, settings: StorageSettings, certificate: Path) -> Iterator[StorageSettings]:
    """The same service behind TLS; the certificate is not trusted yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    front = FlakyProxy(*proxy.target, tls=context)
    try:
        yield replace(settings, endpoint=front.url)
    finally:
        front.close()


def test_untrusted_certificate(tls_settings: StorageSettings) -> None:
    """Waiting would not help: refused, with the field and the remedy."""
    store = S3Store(BUCKET, "", tls_settings, limits=S3Limits(attempts=1))
    with pytest.raises(InvalidInputError, match=r"checkpointing\.storage\.endpoint.*not trusted.*caBundle"):
        store.get("a")


@pytest.mark.parametrize("name", ["none.pem", "text.pem"])
def test_unusable_bundle(tls_settings: StorageSettings, tmp_path: Path, name: str) -> None:
    """A slip in its path, or a file that is no PEM, is no reason to wait either."""
    (tmp_path / "text.pem").write_text("no certificate")
    store = S3Store(BUCKET, "", replace(tls_settings, ca_bundle=str(tmp_path / name)), limits=S3Limits(attempts=1))
    with pytest.raises(InvalidInputError, match=rf"checkpointing\.storage\.caBundle.*{name}"):
        store.get("a")


def test_trusted_certificate(tls_settings: StorageSettings, certificate: Path, tmp_path: Path) -> None:
    """With the bundle everything works, small and in parts (whose checksums travel behind the bytes over TLS)."""
    limits = S3Limits(attempts=1, part_bytes=PART_BYTES, copy_part_bytes=PART_BYTES)
    store = S3Store(BUCKET, f"tests/{uuid.uuid4().hex}", replace(tls_settings, ca_bundle=str(certificate)), limits=limits)
    store.put_if_absent("small", b"x")
    assert store.get("small") == b"x"
    (tmp_path / "large").write_bytes(bytes(range(256)) * (PART_BYTES // 200))
    store.put_file("large", tmp_path / "large")
    store.get_file("large", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == (tmp_path / "large").read_bytes()
