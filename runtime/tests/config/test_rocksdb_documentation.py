"""The table of docs/rocksdb.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from statefulspark.config.rocksdb.options import OPTIONS
from statefulspark.rocksdb.settings import RocksDBSettings
from statefulspark.sizes import parse_size

_PAGE = Path(__file__).parents[3] / "docs" / "rocksdb.md"
_ROW = re.compile(r"^\| `([a-z.-]+)` \| `([a-z_]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def _written(value: Any, text: str) -> bool:
    """Whether a cell of the table stands for a value."""
    if value is None or value == 0:
        return text.startswith("beside") if value is None else text.split(maxsplit=1)[0] == "0" or (value is False and text == "false")
    if isinstance(value, bool):
        return text == "true"
    if isinstance(value, tuple):
        return text == ";".join(value)
    return text == str(value) or float(value) == (float(text) if text.lstrip("-").isdigit() else parse_size(text))


def test_every_option_with_its_defaults() -> None:
    """Name, attribute, our default as `RocksDBSettings` has it, Flink's."""
    rows = {name: (attribute, ours.strip(), flink.strip()) for name, attribute, ours, flink in _ROW.findall(_PAGE.read_text())}
    assert rows.keys() == OPTIONS.keys()
    for name, (attribute, ours, flink) in rows.items():
        assert (attribute, flink) == (OPTIONS[name].attribute, OPTIONS[name].flink_default)
        assert _written(getattr(RocksDBSettings(), attribute), ours), name
