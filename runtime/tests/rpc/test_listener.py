"""Who has no certificate of the job does not get a byte into a slot, and new certificates come into use while calls go on."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from runtime.tests.certificates import NOW, authority_of, signed_by, write

from statefulspark.config.kubernetes.pods import TLS_AUTHORITY_FILE, TLS_CERTIFICATE_FILE, TLS_FOLDER_VARIABLE, TLS_SERVER_NAME
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.rpc.certificates import CertificateFolder
from statefulspark.rpc.flight import ExchangeStream, FlightPeer
from statefulspark.rpc.listener import FlightListener
from statefulspark.rpc.messages.batches import ExchangeRequest
from statefulspark_operator.builders.certificates import Signed

from .echo import Echo, Echoed, echo, exchange_of

SCHEMA = pa.schema([("n", pa.int64())])
ATTACK = """
import sys, pyarrow.flight as fl
location, body = sys.argv[1], b"x" * (300 << 20)
options = {"tls_root_certs": open(sys.argv[2], "rb").read(), "override_hostname": sys.argv[3]} if len(sys.argv) > 2 else {}
client = fl.FlightClient(location, **options)
try:
    list(client.do_action(fl.Action("Echo", body), fl.FlightCallOptions(timeout=20)))
except fl.FlightError as error:
    print("refused", type(error).__name__)
"""


def peak_bytes(*, again: bool = True) -> int:
    """The most memory that this process has had, counted anew from here on with ``again``."""
    if again:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


class Slow:
    """Holds an exchange open until it is told to go on."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def output_schema(self, request: ExchangeRequest) -> pa.Schema:
        return SCHEMA

    def exchange(self, request: ExchangeRequest, stream: ExchangeStream) -> None:
        self.begun.set()
        assert self.go_on.wait(20)
        for batch in list(stream.batches()):
            stream.send(batch)


@pytest.fixture
def authority() -> Signed:
    return authority_of()


@pytest.fixture
def folder(tmp_path: Path, authority: Signed) -> CertificateFolder:
    return write(tmp_path / "ours", authority, signed_by(authority))


@pytest.fixture
def handler() -> Slow:
    return Slow()


@pytest.fixture
def listener(folder: CertificateFolder, handler: Slow) -> Iterator[FlightListener]:
    made = FlightListener("127.0.0.1", "s3cret", [Echo.served_by(echo)], handler, certificates=folder)
    yield made
    handler.go_on.set()
    made.shutdown()


def test_calls_and_exchanges_with_the_jobs_certificates(listener: FlightListener, folder: CertificateFolder, handler: Slow) -> None:
    peer = FlightPeer(listener.location, "s3cret", folder)
    handler.go_on.set()
    assert peer.call(Echo(numbers=(1,))) == Echoed(numbers=(1,))
    with closing(peer.open_exchange(exchange_of(), SCHEMA)) as call:
        call.send(pa.RecordBatch.from_arrays([pa.array([7])], schema=SCHEMA))
        call.end()
        assert [batch.column(0).to_pylist() for batch in call.results()] == [[7]]


def test_another_jobs_certificate_opens_nothing_even_with_the_secret(
    listener: FlightListener, folder: CertificateFolder, tmp_path: Path
) -> None:
    """Neither as the one who calls nor as the one who is called."""
    other = authority_of("other")
    theirs = write(tmp_path / "theirs", other, signed_by(other))
    with pytest.raises(UnavailableError):
        FlightPeer(listener.location, "s3cret", theirs).call(Echo(), timeout_s=5)
    with closing(FlightPeer(listener.location, "s3cret", folder)) as ours:
        assert ours.call(Echo()) == Echoed()
    impostor = FlightListener(
        "127.0.0.1", "s3cret", [Echo.served_by(lambda _: pytest.fail("the secret went to a stranger"))], certificates=theirs
    )
    with pytest.raises(UnavailableError):
        FlightPeer(impostor.location, "s3cret", folder).call(Echo(), timeout_s=5)
    impostor.shutdown()


def test_the_secret_is_needed_besides_the_certificate(listener: FlightListener, folder: CertificateFolder) -> None:
    with pytest.raises(UnavailableError):
        FlightPeer(listener.location, "wrong", folder).call(Echo())


def test_300_mib_from_a_stranger_do_not_grow_the_slot(listener: FlightListener, folder: CertificateFolder) -> None:
    """Over TLS without a certificate, and in clear: not a message is read. The slot is another process than the attacker, as in life."""
    before = peak_bytes()
    for arguments in (
        [listener.location, f"{folder.path}/{TLS_AUTHORITY_FILE}", TLS_SERVER_NAME],
        [listener.location.replace("+tls", "+tcp")],
    ):
        said = subprocess.run([sys.executable, "-c", ATTACK, *arguments], capture_output=True, text=True, timeout=60, check=True)
        assert said.stdout.startswith("refused")
    assert peak_bytes(again=False) - before < 30 << 20


def test_one_machine_needs_no_port() -> None:
    """Other users of the machine cannot open the socket: its folder is this user's alone."""
    before = {found.laddr for found in psutil.Process().net_connections("tcp") if found.status == psutil.CONN_LISTEN}
    listener = FlightListener(None, "s3cret", [Echo.served_by(echo)])
    after = {found.laddr for found in psutil.Process().net_connections("tcp") if found.status == psutil.CONN_LISTEN}
    assert after == before
    path = Path(listener.location.removeprefix("grpc+unix://"))
    assert path.is_socket()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.parent.stat().st_uid == os.getuid()
    assert FlightPeer(listener.location, "s3cret").call(Echo()) == Echoed()
    for _ in range(2):
        listener.shutdown()
    assert not path.parent.exists()


def served(listener: FlightListener) -> bytes:
    """The certificate that a new connection sees."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    port = int(listener.location.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain, context.wrap_socket(plain) as secure:
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").encode()


def test_renewed_certificates_come_into_use_while_calls_go_on(
    listener: FlightListener, folder: CertificateFolder, authority: Signed, handler: Slow
) -> None:
    """On the same port, with a peer from before and an exchange in the middle of its rows; and then once more."""
    peer = FlightPeer(listener.location, "s3cret", folder)
    call = peer.open_exchange(exchange_of(), SCHEMA)
    call.send(pa.RecordBatch.from_arrays([pa.array([1])], schema=SCHEMA))
    assert handler.begun.wait(20)
    assert not listener.renew()
    location = listener.location
    for days in (1, 2):
        renewed = signed_by(authority, NOW - timedelta(days=days))
        write(Path(folder.path), authority, renewed)
        assert listener.renew()
        assert listener.location == location
        assert served(listener) == renewed.certificate
        assert peer.call(Echo(numbers=(days,))) == Echoed(numbers=(days,))
    handler.go_on.set()
    with closing(call):
        call.send(pa.RecordBatch.from_arrays([pa.array([2])], schema=SCHEMA))
        call.end()
        assert [row for batch in call.results() for row in batch.column(0).to_pylist()] == [1, 2]


def test_certificates_that_do_not_work_are_not_taken(listener: FlightListener, folder: CertificateFolder, authority: Signed) -> None:
    peer = FlightPeer(listener.location, "s3cret", folder)
    before = served(listener)
    write(Path(folder.path), authority, Signed(b"no certificate", b"no key"))
    assert not listener.renew()
    assert served(listener) == before
    good = signed_by(authority)
    write(Path(folder.path), authority, good)
    assert listener.renew()
    assert served(listener) == good.certificate
    assert peer.call(Echo()) == Echoed()


def test_a_folder_without_certificates_is_refused_by_name(tmp_path: Path, folder: CertificateFolder) -> None:
    assert CertificateFolder.of({}) is None
    assert CertificateFolder.of({TLS_FOLDER_VARIABLE: folder.path}) == folder
    with pytest.raises(InvalidInputError, match=f"{TLS_FOLDER_VARIABLE}.*{TLS_CERTIFICATE_FILE}"):
        CertificateFolder.of({TLS_FOLDER_VARIABLE: str(tmp_path)})


def test_the_key_is_in_no_text(folder: CertificateFolder) -> None:
    found = folder.read()
    assert "PRIVATE KEY" not in repr(found)
    assert b"PRIVATE KEY" in found.key
