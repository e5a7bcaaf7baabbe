"""A job's certificates: OpenSSL's strict checks accept them for the names that callers use, and for no other job."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.config.kubernetes.pods import TLS_SERVER_NAME
from statefulspark_operator.builders.certificates import (
    AUTHORITY_LIFE,
    CERTIFICATE_LIFE,
    RENEW_BEFORE,
    Signed,
    new_authority,
    new_certificate,
    renewal_due,
)

NOW = datetime.now(UTC).replace(microsecond=0)  # certificates know whole seconds
SECRET = b"a" * 64


def handshake(folder: Path, signed: Signed, authority: Signed, name: str) -> None:
    """Both sides in memory, each with the certificate and each asking the other for one."""
    (folder / "chain.pem").write_bytes(signed.certificate + signed.key)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.load_cert_chain(folder / "chain.pem")
        context.load_verify_locations(cadata=authority.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [server.wrap_bio(to_server, to_client, server_side=True), client.wrap_bio(to_client, to_server, server_hostname=name)]
    done = 0
    while done < 2:
        done = 0
        for end in ends:
            try:
                end.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", [TLS_SERVER_NAME, "counts-driver", "counts-driver.shop.svc", "localhost", "127.0.0.1", "::1"])
def test_both_sides_accept_it(tmp_path: Path, name: str) -> None:
    authority = new_authority("counts", SECRET, NOW)
    handshake(tmp_path, new_certificate(authority, service="counts-driver", namespace="shop", now=NOW), authority, name)


def test_nobody_else_is_accepted(tmp_path: Path) -> None:
    """Another job's authority, another name, a certificate before and after its time."""
    authority, other = new_authority("counts", SECRET, NOW), new_authority("counts", b"b" * 64, NOW)
    signed = new_certificate(authority, service="counts-driver", namespace="shop", now=NOW)
    late = new_certificate(authority, service="counts-driver", namespace="shop", now=NOW - CERTIFICATE_LIFE - timedelta(minutes=1))
    early = new_certificate(authority, service="counts-driver", namespace="shop", now=NOW + timedelta(days=1))  # a test run can take hours
    for each, by, name in ((signed, other, TLS_SERVER_NAME), (signed, authority, "payments-driver"), (late, authority, TLS_SERVER_NAME)):
        with pytest.raises(ssl.SSLError):
            handshake(tmp_path, each, by, name)
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, early, authority, TLS_SERVER_NAME)


def test_a_certificate_signs_nothing(tmp_path: Path) -> None:
    """Who gets hold of a pod's key cannot make certificates for others."""
    authority = new_authority("counts", SECRET, NOW)
    signed = new_certificate(authority, service="counts-driver", namespace="shop", now=NOW)
    forged = new_certificate(signed, service="counts-driver", namespace="shop", now=NOW)
    with pytest.raises(ssl.SSLError):
        handshake(tmp_path, Signed(forged.certificate + signed.certificate, forged.key), authority, TLS_SERVER_NAME)


@given(days=st.integers(0, 3650))
def test_it_is_renewed_in_time_as_long_as_the_authority_lives(days: int) -> None:
    signed = new_certificate(_AUTHORITY, service="counts-driver", namespace="shop", now=NOW)
    now = NOW + timedelta(days=days)
    assert renewal_due(_end(signed), now) == (days > (CERTIFICATE_LIFE - RENEW_BEFORE).days)
    again = new_certificate(_AUTHORITY, service="counts-driver", namespace="shop", now=now)
    assert not renewal_due(_end(again), now)
    ends = x509.load_pem_x509_certificate(_AUTHORITY.certificate).not_valid_after_utc
    assert ends - NOW >= AUTHORITY_LIFE - timedelta(minutes=1)


_AUTHORITY = new_authority("counts", SECRET, NOW)


@pytest.mark.parametrize("text", [None, "", "soon", "2999-01-01T00:00:00", 7])
def test_a_certificate_of_which_the_end_is_not_known_is_due(text: object) -> None:
    """Also one without a zone."""
    assert renewal_due(text, NOW)


def _end(signed: Signed) -> str:
    return x509.load_pem_x509_certificate(signed.certificate).not_valid_after_utc.isoformat()


@given(st.binary(min_size=64, max_size=64))
def test_an_authority_that_is_made_again_vouches_for_what_the_first_has_signed(
    tmp_path_factory: pytest.TempPathFactory, secret: bytes
) -> None:
    """At another time and by another process: its key is stored nowhere."""
    first, again = new_authority("counts", secret, NOW), new_authority("counts", secret, NOW + timedelta(days=70))
    assert first.certificate != again.certificate
    signed = new_certificate(first, service="counts-driver", namespace="shop", now=NOW)
    by_again = new_authority("counts", secret, NOW - timedelta(days=70))
    handshake(tmp_path_factory.mktemp("made"), signed, by_again, TLS_SERVER_NAME)


@pytest.mark.parametrize("secret", [b"\0" * 64, b"\xff" * 64], ids=["least", "greatest"])
def test_every_secret_makes_a_key(secret: bytes) -> None:
    assert b"PRIVATE KEY" in new_authority("counts", secret, NOW).key


def test_keys_are_in_no_text() -> None:
    assert "PRIVATE" not in repr(_AUTHORITY)
