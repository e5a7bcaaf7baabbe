"""Reading files piece by piece: all bytes in order, in blocks that a slot's allocator does not take from the system."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from statefulspark.slot.allocator import MMAP_THRESHOLD_BYTES
from statefulspark.storage.pieces import PIECE_BYTES, pieces


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 17])
@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_file_is_read_whole_and_in_order(tmp_path: Path, size: int, is_buffered: bool) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") if is_buffered else io.FileIO(tmp_path / "file") as file:
        found = [bytes(piece) for piece in pieces(file)]
    assert b"".join(found) == data
    assert all(0 < len(piece) <= PIECE_BYTES for piece in found)


def test_the_rest_of_a_file_is_read() -> None:
    file = io.BytesIO(b"header and state")
    file.seek(11)
    assert [bytes(piece) for piece in pieces(file)] == [b"state"]


def test_pieces_are_smaller_than_what_the_allocator_takes_from_the_system() -> None:
    assert PIECE_BYTES < MMAP_THRESHOLD_BYTES
