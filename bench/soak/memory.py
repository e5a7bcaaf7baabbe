"""Memory of processes, sampled from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process.

    Attributes:
        at_s: Seconds since the sampler started.
        progress: What the sampler was told to note with it.
        rss_bytes: Resident memory, as the OOM killer counts it.
        anonymous_bytes: Of that, without mapped files (code, libraries).
        pss_bytes: Proportional set size: a page that n processes share counts 1/n. None in most samples, because the kernel walks all
            pages for it.
    """

    at_s: float
    progress: float
    rss_bytes: int
    anonymous_bytes: int
    pss_bytes: int | None


_PSS_EVERY: Final = 25


class Sampler:
    """Looks at processes every ``interval_s``; a context manager.

    Args:
        pids: The processes.
        progress: Noted with each sample.
        interval_s: Pause between two looks.

    Attributes:
        samples: Per process.
        peak_bytes: Per process, the highest resident memory of its life, as the kernel noted it, also between two looks.
    """

    def __init__(self, pids: list[int], progress: Callable[[], float], interval_s: float = 0.2) -> None:
        self.samples: list[list[Sample]] = [[] for _ in pids]
        self.peak_bytes = [0 for _ in pids]
        self._pids = pids
        self._progress = progress
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        looks = 0
        while not self._stop.wait(self._interval_s):
            looks += 1
            for number, pid in enumerate(self._pids):
                try:
                    sizes = _sizes(pid, "status")
                    pss = _sizes(pid, "smaps_rollup").get("Pss") if looks % _PSS_EVERY == 0 else None
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if "VmRSS" in sizes:
                    at_s = time.monotonic() - self._started
                    self.samples[number].append(Sample(at_s, self._progress(), sizes["VmRSS"], sizes["RssAnon"], pss))
                    self.peak_bytes[number] = max(self.peak_bytes[number], sizes["VmHWM"])


def _sizes(pid: int, file: str) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8").splitlines()
    return {line.partition(":")[0]: int(line.split()[1]) << 10 for line in lines if line.endswith(" kB")}
