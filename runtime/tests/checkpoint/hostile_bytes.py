"""Reads hostile bytes with every reader of stored bytes, in a process of its own whose memory is limited: ``python hostile_bytes.py <scratch> <seed>``.

Writes one JSON document: the failures, and the peak of resident memory in MiB.
"""

from __future__ import annotations

import hashlib
import json
import resource
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa

from statefulspark.checkpoint.formats.bundle import decode_bundle
from statefulspark.checkpoint.formats.changelog import read_changelog
from statefulspark.checkpoint.formats.changelog_group import decode_group
from statefulspark.checkpoint.formats.documents import decode_document
from statefulspark.checkpoint.formats.metadata import decode_metadata
from statefulspark.checkpoint.formats.operator_state import decode_operator_file
from statefulspark.checkpoint.formats.packs import check_pack
from statefulspark.checkpoint.formats.records import AttemptClaim, AttemptStart, BatchRecord, SavepointClaim
from statefulspark.errors import CorruptDataError
from statefulspark.job.history.encoding import decode_history
from statefulspark.state.encoding.entries import read_entries, write_entries
from statefulspark.state.store.entries_file import EntriesFile

GOLDEN = Path(__file__).parent / "golden"
LIMIT_BYTES = 4 << 30
MUTATIONS = 3
Reader = Callable[[Path], object]


def readers() -> dict[str, Reader]:
    """Every reader by its name; each takes a file."""

    def changelog(path: Path) -> object:
        return sum(1 for _ in read_changelog(path).changes)

    def entries(path: Path) -> object:
        with_index = EntriesFile(path)
        try:
            return sum(1 for _ in with_index.scan(b"", b"\xff" * 9))
        finally:
            with_index.close()

    return {
        "metadata": lambda path: decode_metadata(path.read_bytes(), path="x"),
        "batch": lambda path: decode_document(path.read_bytes(), "batch", BatchRecord, path="x"),
        "attempt": lambda path: decode_document(path.read_bytes(), "attempt", AttemptClaim, path="x"),
        "start": lambda path: decode_document(path.read_bytes(), "attempt-start", AttemptStart, path="x"),
        "claim": lambda path: decode_document(path.read_bytes(), "savepoint-claim", SavepointClaim, path="x"),
        "changelog": changelog,
        "group": lambda path: decode_group(path.read_bytes(), path="x"),
        "operator": lambda path: decode_operator_file(path.read_bytes(), path="x"),
        "bundle": lambda path: decode_bundle(path.read_bytes(), path="x"),
        "pack": lambda path: check_pack(path, name="x"),
        "history": lambda path: decode_history(path.read_bytes(), path="x"),
        "entries": lambda path: sum(1 for _ in read_entries(path)),
        "entries file": entries,
    }


def bombs() -> Iterator[tuple[str, bytes]]:
    """Bytes whose checksums fit and whose counts, lengths or levels do not."""
    for levels in (150, 990, 100_000):
        for kind in ("checkpoint", "batch", "attempt", "attempt-start", "job", "savepoint-claim"):
            body = b'{"a":' * levels + b"1" + b"}" * levels
            checksum = f"sha256:{hashlib.sha256(body).hexdigest()}".encode()
            yield f"{levels} levels", b'{"format_version":14,"kind":"%s","checksum":"%s","body":%s}\n' % (kind.encode(), checksum, body)
        yield f"{levels} lists", b"[" * levels + b"]" * levels
    header = (GOLDEN / "changelog-v5.bin").read_bytes()
    header = header[: 9 + struct.unpack(">I", header[5:9])[0] + 4]
    for count, raw in ((25_000_000, bytes(200_000_000)), (8_000_000, bytes(64_000_000)), (1, bytes(200_000_000))):
        stored: bytes = pa.compress(raw, codec="zstd", asbytes=True)
        head = struct.pack(">BIII", 1, count, len(raw), len(stored))
        yield f"frame of {count}", header + head + struct.pack(">I", zlib.crc32(stored, zlib.crc32(head))) + stored
        head = b"SSOP\x01" + struct.pack(">III", count, len(raw), len(stored))
        yield f"operator state of {count}", head + struct.pack(">I", zlib.crc32(stored, zlib.crc32(head))) + stored
    raw = struct.pack(">HHBI", 0, 1, 0, 7_000_000) + bytes(56_000_000)
    stored = pa.compress(raw, codec="zstd", asbytes=True)
    head = b"SSOP\x01" + struct.pack(">III", 1, len(raw), len(stored))
    yield "operator state of many items", head + struct.pack(">I", zlib.crc32(stored, zlib.crc32(head))) + stored
    raw = struct.pack(">I", 10_000_000) + bytes(100_000_000)
    stored = zlib.compress(raw, 9)
    yield "bundle", struct.pack(">4sBII", b"SSLB", 1, len(raw), zlib.crc32(stored)) + stored
    yield "history", struct.pack(">4sBII", b"SSJH", 4, len(raw), zlib.crc32(stored)) + stored
    start = struct.pack(">4sBI", b"SSCL", 6, 0xFFFFFFFF)
    yield "group", start + struct.pack(">I", zlib.crc32(start))
    yield "entries", b"SSPE\x01" + struct.pack(">II", 0xFFFFFFFE, 0xFFFFFFFF) + bytes(100)
    index = struct.pack(">I", 0xFFFFFFFF)
    yield "pack", b"SSSP\x01" + index + struct.pack(">I", 4) + struct.pack(">I", zlib.crc32(index + struct.pack(">I", 4)))


def inputs(scratch: Path, random: Random) -> Iterator[tuple[str, bytes]]:
    """Random bytes, mutations of every golden file, and bombs."""
    for size in (0, 1, 4, 5, 9, 64, 4096):
        yield f"random {size}", random.randbytes(size)
    small = scratch / "small"
    write_entries(small, ((bytes([number]), bytes(number)) for number in range(20)))
    files = [small, *sorted(path for path in GOLDEN.rglob("*") if path.is_file() and path.stat().st_size < 100_000)]
    for path in files:
        data = path.read_bytes()
        for _ in range(MUTATIONS):
            yield f"mutated {path.name}", mutated(data, random)
    yield from bombs()


def mutated(data: bytes, random: Random) -> bytes:
    """Flip, overwrite, cut, repeat or remove some bytes."""
    changed = bytearray(data)
    at, size = random.randrange(len(data) + 1), random.randrange(1, 9)
    match random.randrange(5):
        case 0:
            for _ in range(size):
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        case 1:
            changed[at : at + size] = b"\xff" * size
        case 2:
            del changed[at:]
        case 3:
            changed[at:at] = changed[:at]
        case _:
            del changed[at : at + size]
    return bytes(changed)


def _peak_mib() -> int:
    """Peak of this program's memory. ``ru_maxrss`` would begin with that of the process that started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) >> 10


def main() -> None:
    """Read everything and print what failed."""
    scratch, seed = Path(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    failures: list[str] = []
    path = scratch / "hostile"
    for name, data in inputs(scratch, Random(seed)):
        path.write_bytes(data)
        for reader, read in readers().items():
            try:
                read(path)
            except CorruptDataError:
                continue
            except BaseException as error:
                failures.append(f"{reader}: {name}: {type(error).__name__}: {str(error)[:100]}")
    sys.stdout.write(json.dumps({"failures": failures, "peak_mib": _peak_mib()}))


if __name__ == "__main__":
    main()
