"""FaultyStore: injects the faults of real storage, from a seed. A test hook; nothing uses it unless asked to.

``open_store`` wraps every store with it when the environment has
``STATEFULSPARK_STORAGE_FAULTS="seed=7,rate=0.05,kinds=error|timeout|lost-reply|torn|latency,latency_ms=20,log=/tmp/faults"``
(all but ``rate`` may be left out). Whether an attempt is hit depends only on the seed, the operation, its key, and how many
attempts of the two this store has seen: not on the order of threads, so a failing run repeats.
"""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from statefulspark.errors import InvalidInputError, StatefulSparkError, UnavailableError
from statefulspark.storage.base import ObjectInfo, ObjectStore
from statefulspark.storage.cancellation import Cancellation
from statefulspark.storage.hashes import HashAlgorithm

FAULTS_ENVIRONMENT = "STATEFULSPARK_STORAGE_FAULTS"
"""Name of the environment variable."""

_WRITES = {"put", "put_if_absent", "put_file", "copy", "delete"}
_ATTEMPTS_REMEMBERED_MAX = 100_000

T = TypeVar("T")


class FaultKind(StrEnum):
    """What can go wrong."""

    ERROR = "error"
    """Refused before anything happened."""

    TIMEOUT = "timeout"
    """No answer in time; a coin says whether it happened."""

    LOST_REPLY = "lost-reply"
    """It happened, the reply was lost."""

    TORN = "torn"
    """An upload broke off half-way: part of the source was read, nothing is visible. On reads the same as ERROR."""

    LATENCY = "latency"
    """Slow, then as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Which faults, how often.

    Raises:
        InvalidInputError: A value is out of bounds.
    """

    rate: float
    """Share of attempts that are hit, 0..1."""

    seed: int = 0
    """Same seed, same faults."""

    kinds: tuple[FaultKind, ...] = (FaultKind.ERROR, FaultKind.TIMEOUT, FaultKind.LOST_REPLY, FaultKind.TORN)
    """What may happen; each is equally likely."""

    latency_ms: int = 20
    """How long LATENCY waits."""

    log: Path | None = None
    """File that gets one line ``kind operation key`` per fault, from all processes; None: none."""

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not 0 <= self.rate <= 1 or not self.kinds or self.latency_ms < 0:
            raise InvalidInputError(f"{self} is out of bounds", field=FAULTS_ENVIRONMENT, remedy="rate is 0..1, kinds is not empty")


def parse_fault_plan(text: str) -> FaultPlan:
    """Parse the value of ``STATEFULSPARK_STORAGE_FAULTS``.

    Raises:
        InvalidInputError: Unknown setting or kind, or a value that is no number.
    """
    settings: dict[str, Any] = {}
    parsers: dict[str, Callable[[str], Any]] = {
        "seed": int,
        "rate": float,
        "kinds": lambda value: tuple(FaultKind(kind) for kind in value.split("|")),
        "latency_ms": int,
        "log": Path,
    }
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        try:
            settings[name] = parsers[name](value)
        except (KeyError, ValueError) as exc:
            raise InvalidInputError(
                f"cannot read {item!r}", field=FAULTS_ENVIRONMENT, remedy="Write seed=7,rate=0.05,kinds=error|timeout|lost-reply"
            ) from exc
    if "rate" not in settings:
        raise InvalidInputError("rate is missing", field=FAULTS_ENVIRONMENT, remedy="Write rate=0.05 for 5 % of all attempts")
    return FaultPlan(**settings)


class FaultyStore:
    """Passes everything to ``inner`` but for the faults of ``plan``. Thread-safe; a pickled copy starts counting from zero."""

    def __init__(self, inner: ObjectStore, plan: FaultPlan, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._inner = inner
        self._plan = plan
        self._sleep = sleep
        self._start_counting()

    @property
    def url(self) -> str:
        """Of the inner store."""
        return self._inner.url

    @property
    def injected(self) -> dict[FaultKind, int]:
        """How many faults of each kind this store has injected."""
        with self._lock:
            return dict(self._injected)

    def __repr__(self) -> str:
        """Name the inner store and the plan."""
        return f"FaultyStore({self._inner!r}, {self._plan!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out lock and counts."""
        return {"inner": self._inner, "plan": self._plan, "sleep": self._sleep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore with fresh counts."""
        self._inner, self._plan, self._sleep = state["inner"], state["plan"], state["sleep"]
        self._start_counting()

    def put(self, key: str, data: bytes) -> None:
        """Write or replace."""
        self._call("put", key, lambda: self._inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Create; ConflictError when the key exists with other bytes."""
        self._call("put_if_absent", key, lambda: self._inner.put_if_absent(key, data))

    def put_file(self, key: str, path: Path, cancellation: Cancellation | None = None) -> None:
        """Upload a local file; a torn upload reads half of it."""
        self._call("put_file", key, lambda: self._inner.put_file(key, path, cancellation), torn=lambda: _read_half(path))

    def get(self, key: str) -> bytes:
        """Read whole; KeyError when absent."""
        return self._call("get", key, lambda: self._inner.get(key))

    def get_file(self, key: str, path: Path, algorithm: HashAlgorithm = HashAlgorithm.XXH128) -> str | None:
        """Download to ``path``; KeyError when absent."""
        return self._call("get_file", key, lambda: self._inner.get_file(key, path, algorithm))

    def head(self, key: str) -> ObjectInfo | None:
        """Info or None."""
        return self._call("head", key, lambda: self._inner.head(key))

    def list(self, prefix: str) -> builtins.list[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""
        return self._call("list", prefix, lambda: self._inner.list(prefix))

    def list_folders(self, prefix: str) -> builtins.list[str]:
        """Names directly below ``prefix`` that have objects under them, sorted."""
        return self._call("list_folders", prefix, lambda: self._inner.list_folders(prefix))

    def copy(self, source: str, target: str) -> None:
        """Server-side copy; KeyError when ``source`` is absent."""
        self._call("copy", target, lambda: self._inner.copy(source, target))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine. A torn delete removes the first half."""
        every = builtins.list(keys)
        half = every[: len(every) // 2]
        self._call("delete", every[0] if every else "", lambda: self._inner.delete(every), torn=lambda: self._inner.delete(half))

    def _call(self, operation: str, key: str, act: Callable[[], T], *, torn: Callable[[], object] | None = None) -> T:
        fault, coin = self._next_fault(operation, key)
        if fault is None:
            return act()
        if fault is FaultKind.LATENCY:
            self._sleep(self._plan.latency_ms / 1000)
            return act()
        if fault is FaultKind.TORN and torn is not None:
            torn()
        if fault is FaultKind.LOST_REPLY or (fault is FaultKind.TIMEOUT and coin and operation in _WRITES):
            # Whatever the answer was, also "absent" or "conflict": it is what gets lost.
            with contextlib.suppress(StatefulSparkError, KeyError):
                act()
        raise UnavailableError(f"{self.url}: injected fault {fault.value} in {operation}", retry_after_s=0.05)

    def _next_fault(self, operation: str, key: str) -> tuple[FaultKind | None, bool]:
        with self._lock:
            if len(self._attempts) >= _ATTEMPTS_REMEMBERED_MAX:
                self._attempts.clear()
            self._attempts[operation, key] += 1
            attempt = self._attempts[operation, key]
        digest = hashlib.blake2b(
            f"{self._plan.seed}\0{operation}\0{key}\0{attempt}".encode("utf-8", "surrogatepass"), digest_size=16
        ).digest()
        if int.from_bytes(digest[:8], "big") / 2**64 >= self._plan.rate:
            return None, False
        fault = self._plan.kinds[int.from_bytes(digest[8:12], "big") % len(self._plan.kinds)]
        with self._lock:
            self._injected[fault] += 1
        if self._plan.log is not None:
            _append(self._plan.log, f"{fault.value} {operation} {key}\n")
        return fault, digest[12] % 2 == 1

    def _start_counting(self) -> None:
        self._lock = threading.Lock()
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._injected: Counter[FaultKind] = Counter()


def _read_half(path: Path) -> None:
    with path.open("rb") as stream:
        stream.read(path.stat().st_size // 2)


def _append(path: Path, line: str) -> None:
    # One write in append mode: lines of several processes do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode("utf-8", "backslashreplace"))
    finally:
        os.close(descriptor)
