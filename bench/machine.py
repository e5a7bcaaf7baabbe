"""On what, on which commit and beside how much other work something is measured."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from results import Load

ROOT = Path(__file__).resolve().parent.parent
_SAMPLE_S = 0.5


def load(before: str) -> Load:
    """Look at the machine while this benchmark does nothing."""
    return Load(before=before, load_1m=round(psutil.getloadavg()[0], 2), busy=round(psutil.cpu_percent(interval=_SAMPLE_S) / 100, 2))


def describe() -> str:
    """Processor, memory and versions, in one line."""
    model = next((line.split(":", 1)[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")), "")
    processor = model or platform.processor() or platform.machine()
    memory_gib = psutil.virtual_memory().total / (1 << 30)
    versions = f"Python {platform.python_version()}, pyspark {version('pyspark')}, pyarrow {version('pyarrow')}"
    return f"{psutil.cpu_count()} cores ({processor}), {memory_gib:.0f} GiB, {platform.system()}, {versions}"


def commit() -> str:
    """Short name of the commit, with a word when code differs from it; "unknown" outside of a checkout."""
    head = _git("rev-parse", "--short=9", "HEAD")
    if head is None:
        return "unknown"
    # What benchmarks themselves write does not count.
    return f"{head}, changed" if _git("status", "--porcelain", "--", ".", ":!docs") else head


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


class Clock:
    """Notes when a benchmark began; gives the parts of a `Result` that are the same for all of them."""

    def __init__(self) -> None:
        self._started = datetime.now(UTC)
        self._from = time.monotonic()

    def header(self, script: str) -> dict[str, Any]:
        """Fields of the result of ``script`` (its ``__file__``): ``name``, ``command``, ``started``, ``seconds``, ``machine``, ``commit``."""
        return {
            "name": Path(script).stem,
            "command": " ".join(["bench/" + Path(script).name, *_without_result(sys.argv[1:])]),
            "started": self._started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._from, 1),
            "machine": describe(),
            "commit": commit(),
        }


def _without_result(arguments: list[str]) -> list[str]:
    if "--result" not in arguments:
        return arguments
    at = arguments.index("--result")
    return arguments[:at] + arguments[at + 2 :]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
