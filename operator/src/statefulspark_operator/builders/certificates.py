"""The certificates of a job: an authority of its own, and one certificate for all its processes. The only home of cryptography.

The authority signs nothing but this job's certificates, so to trust it is to mean this job, whatever address a pod has. Its private key is
derived, so it is made whenever it is needed and stored nowhere. Pure but for random numbers; the time is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from statefulspark.config.kubernetes.pods import TLS_SERVER_NAME

AUTHORITY_LIFE: Final = timedelta(days=3650)
CERTIFICATE_LIFE: Final = timedelta(days=90)
RENEW_BEFORE: Final = timedelta(days=30)
"""A certificate with less time left is replaced; drivers and executors read it within minutes."""
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Private keys on P-256 are numbers from 1 to below this (NIST SP 800-186)."""
_SKEW: Final = timedelta(minutes=10)
"""Clocks of nodes may be behind by so much."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


def new_authority(job: str, secret: bytes, now: datetime) -> Signed:
    """Make a certificate of the authority of a job. Any of the same ``job`` and ``secret`` vouches for whatever one of them has signed.

    Args:
        job: Its name.
        secret: What the private key is made from: 64 bytes, so that each key is equally likely.
        now: The present time.
    """
    key = ec.derive_private_key(1 + int.from_bytes(secret) % (_ORDER - 1), ec.SECP256R1())
    name = _name(f"{job} statefulspark authority")
    builder = _builder(name, name, key.public_key(), now, AUTHORITY_LIFE).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    builder = builder.add_extension(_usage(authority=True), critical=True)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    return _signed(builder, key, key)


def new_certificate(authority: Signed, *, service: str, namespace: str, now: datetime) -> Signed:
    """Make a certificate for both sides of a connection, valid for the job's fixed name, the driver's service and port-forwarding.

    Args:
        authority: Signs it.
        service: Name of the driver's service.
        namespace: The job's.
        now: The present time.

    Raises:
        ValueError: That is no authority of `new_authority`.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a certificate authority of the operator")  # noqa: TRY004  all keys of the library have one type
    key = ec.generate_private_key(ec.SECP256R1())
    names = [TLS_SERVER_NAME, service, f"{service}.{namespace}", f"{service}.{namespace}.svc", "localhost"]
    alternatives = [*(x509.DNSName(name) for name in names), x509.IPAddress(ip_address("127.0.0.1")), x509.IPAddress(ip_address("::1"))]
    builder = _builder(_name(TLS_SERVER_NAME), issuer.subject, key.public_key(), now, CERTIFICATE_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(authority=False), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    return _signed(builder, key, issuer_key)


def renewal_due(not_after: object, now: datetime) -> bool:
    """True if a certificate is near its end, given as ISO 8601 with a zone; True for what is no time."""
    try:
        return datetime.fromisoformat(str(not_after)) - now < RENEW_BEFORE
    except (ValueError, TypeError):
        return True


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _SKEW).not_valid_after(now + life)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey) -> Signed:
    certificate = builder.sign(by, hashes.SHA256())
    return Signed(certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
