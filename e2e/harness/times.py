"""Measured times: each test notes its own in out/e2e/times.json, `e2e.harness.report` makes the section of docs/benchmarks.md of them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from e2e.harness.images import OUT

TIMES: Final = OUT / "times.json"
VERSION: Final = 1


def note(what: str, seconds: float, *, state_bytes: int, about: str, path: Path = TIMES) -> None:
    """Keep a measured time; a later one of the same name takes its place.

    Args:
        what: was measured; a name of `TARGETS` where there is a target.
        seconds: it took.
        state_bytes: size of the job's newest checkpoint.
        about: how it was measured, a few words.
        path: the file.
    """
    kept = read(path)
    kept[what] = {
        "seconds": round(seconds, 2),
        "stateBytes": state_bytes,
        "about": about,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load1m": round(os.getloadavg()[0], 1),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": VERSION, "times": kept}, indent=1) + "\n")


def read(path: Path = TIMES) -> dict[str, dict[str, Any]]:
    """The times that were noted, by name.

    Raises:
        ValueError: another version wrote them.
    """
    if not path.exists():
        return {}
    data = json.loads(path.read_text())
    if data["version"] != VERSION:
        raise ValueError(f"{path} is of version {data['version']}, not {VERSION}: delete it and run make e2e again")
    return dict(data["times"])
