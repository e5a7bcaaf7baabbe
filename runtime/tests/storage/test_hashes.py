"""Hashes are those of the published algorithms, however the bytes are cut into pieces."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefulspark.checkpoint.formats.digests import FileDigest, check_digest, digest_bytes, digest_file
from statefulspark.errors import CorruptDataError
from statefulspark.storage.hashes import HashAlgorithm, write_hashed
from statefulspark.storage.pieces import PIECE_BYTES

PUBLISHED = {
    # XXH3_128bits with seed 0: its own test vectors, in the canonical (big-endian) form; https://github.com/Cyan4973/xxHash
    b"": "99aa06d3014798d86001c324468d497f",
    b"a": "a96faf705af16834e6c632b61e964e1f",
    b"abc": "06b05ab6733a618578af5f94892f3950",
}


@pytest.mark.parametrize("data", PUBLISHED)
def test_xxh128_is_the_published_one(data: bytes) -> None:
    assert digest_bytes(data) == FileDigest(len(data), f"xxh128:{PUBLISHED[data]}")


@given(st.lists(st.binary(max_size=300)), st.sampled_from(HashAlgorithm))
def test_pieces_have_the_hash_of_the_whole(pieces: list[bytes], algorithm: HashAlgorithm) -> None:
    file = BytesIO()
    digits = write_hashed(pieces, file, algorithm)
    whole = b"".join(pieces)
    assert file.getvalue() == whole
    assert FileDigest.of(len(whole), algorithm, digits) == digest_bytes(whole, algorithm)
    if algorithm is HashAlgorithm.SHA256:
        assert digits == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("algorithm", HashAlgorithm)
@pytest.mark.parametrize("size_bytes", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7])
def test_files_have_the_hash_of_their_bytes(tmp_path: Path, algorithm: HashAlgorithm, size_bytes: int) -> None:
    data = bytes(i * i % 251 for i in range(size_bytes))
    (tmp_path / "file").write_bytes(data)
    found = digest_file(tmp_path / "file", algorithm)
    assert found == digest_bytes(data, algorithm)
    assert found.algorithm is algorithm


@given(st.binary(min_size=1, max_size=2_000), st.data())
def test_each_flipped_bit_and_cut_is_found(data: bytes, drawn: st.DataObject) -> None:
    bit = drawn.draw(st.integers(0, 8 * len(data) - 1))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    for algorithm in HashAlgorithm:
        expected = digest_bytes(data, algorithm)
        for found in (bytes(damaged), data[: bit // 8], data + b"x"):
            with pytest.raises(CorruptDataError):
                check_digest(digest_bytes(found, algorithm), expected, path="file")
