"""Keys are found in the key group that Spark's hash gives them; `test_spark.py` compares with Spark itself."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from state_snapshots import UID, write_savepoint

from statefulspark.checkpoint.catalog import open_checkpoint
from statefulspark.checkpoint.inspect.key_hashes import key_group_of, xxh64
from statefulspark.storage.open import open_store


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
        (b"xxhash", 20141025, 0xB559B98D844E0635),
    ],
)
def test_published_hashes(data: bytes, seed: int, expected: int) -> None:
    """Vectors of the algorithm's authors and of its Python package."""
    assert xxh64(data, seed) == expected


@pytest.mark.parametrize(
    ("key", "type_"),
    [
        (5, "binary"),
        ("5", "bigint"),
        (1 << 70, "bigint"),
        (Decimal("1.234"), "decimal(10,2)"),
        (Decimal("NaN"), "decimal(10,2)"),
        (Decimal(10) ** 30, "decimal(10,2)"),
        (datetime(2024, 1, 1), "date"),  # noqa: DTZ001
        (date(2024, 1, 1), "timestamp"),
        ("a", "string collate UNICODE_CI"),
        (("a", "b"), "string"),
    ],
)
def test_no_guess_where_the_hash_is_not_known(tmp_path: Path, key: Any, type_: str) -> None:
    """A wrong key group would lose rows: then all of them are read."""
    url = write_savepoint(tmp_path / "savepoint", [], [], columns=[("k", type_)])
    assert key_group_of(open_checkpoint(url, open_store).metadata, UID, key) is None


def test_a_savepoint_that_does_not_say_how_keys_are_hashed(tmp_path: Path) -> None:
    metadata = open_checkpoint(write_savepoint(tmp_path / "savepoint", [], []), open_store).metadata
    assert key_group_of(metadata, UID, "ada") is None
