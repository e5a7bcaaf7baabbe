"""A job folder on the local disk, opened as the product opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from statefulspark.storage.base import ObjectStore
from statefulspark.storage.open import open_store


@pytest.fixture
def job(tmp_path: Path) -> ObjectStore:
    """An empty job folder."""
    return open_store((tmp_path / "checkpoints" / "flights").as_uri())
