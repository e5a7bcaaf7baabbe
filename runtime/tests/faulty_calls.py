"""Storage that fails, fills up, answers late or is gone at a call that the test chooses, and processes that die there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from statefulspark.checkpoint.catalog import OpenStore
from statefulspark.errors import InvalidInputError, UnavailableError
from statefulspark.storage.open import open_store

_WRITES = frozenset({"put", "put_if_absent", "put_file", "copy", "delete"})


class KilledError(Exception):
    """The process is gone: no error of the product, which tidies up after those."""


@dataclass
class Faults:
    """What happens at one call of storage, counted over all stores that it has opened, or from that call on. Thread-safe.

    Attributes:
        kind: Name of one of `KINDS`.
        at: Number of the call, from 1; 0 for none.
        opener: Opens the stores below.
        names: The calls so far.
        hits: Number of calls that were hit.
        late: Writes of which the caller knows no outcome yet, and which storage makes when it likes.
        happens: What happens at the call, if it is none of `KINDS`.
    """

    kind: str
    at: int
    opener: OpenStore = open_store
    names: list[str] = field(default_factory=list)
    hits: int = 0
    late: list[Callable[[], object]] = field(default_factory=list)
    happens: Callable[[Faults, str, Callable[[], Any]], Any] | None = None
    _lock: Lock = field(default_factory=Lock)

    def open(self, url: str) -> Any:
        """Stands for `open_store`."""
        return _Store(self.opener(url), self)

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return len(self.names)

    def call(self, name: str, act: Callable[[], Any]) -> Any:
        """Make a call, or let happen what happens to it."""
        if not self._is_hit(name):
            return act()
        if self.happens is not None:
            return self.happens(self, name, act)
        return KINDS[self.kind](self, name, act)

    def _is_hit(self, name: str) -> bool:
        with self._lock:
            self.names.append(name)
            if not self.at or self.calls < self.at or (self.calls > self.at and (self.happens is not None or self.kind in _ONCE)):
                return False
            if (self.kind in ("full", "denied") and name not in _WRITES) or (self.kind == "full" and name == "delete"):
                return False
            self.hits += 1
            return True


def _failed(_: Faults, name: str, __: Callable[[], Any]) -> None:
    raise UnavailableError(f"the test failed {name}")


def _lost(_: Faults, name: str, act: Callable[[], Any]) -> None:
    act()
    raise UnavailableError(f"the test lost the reply of {name}")


def _late(faults: Faults, name: str, act: Callable[[], Any]) -> None:
    if name in _WRITES:
        faults.late.append(act)
    raise UnavailableError(f"no answer to {name} in time")


def _denied(_: Faults, name: str, __: Callable[[], Any]) -> None:
    raise InvalidInputError(f"the test denied {name}", field="checkpointing.dir", remedy="Grant it")


def _killed(*_: Any) -> None:
    raise KilledError


def _killed_after(faults: Faults, _: str, act: Callable[[], Any]) -> None:
    if faults.hits == 1:
        act()
    raise KilledError


KINDS: dict[str, Callable[[Faults, str, Callable[[], Any]], Any]] = {
    "failed": _failed,
    "lost": _lost,
    "late": _late,
    "down": _failed,
    "full": _failed,
    "denied": _denied,
    "killed": _killed,
    "killed after": _killed_after,
}
_ONCE = frozenset({"failed", "lost", "late"})
"""The others go on from then on."""


class _Store:
    """Passes calls on to a store."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any) -> Any:
            # An iterator of keys is used up by the first of two calls.
            given: list[Any] = [list(each) if name == "delete" else each for each in args]
            if name == "put_file":
                key, path, *_ = given
                data = path.read_bytes()  # a request that storage makes late has the bytes that were sent
                return self._faults.call(name, lambda: self._inner.put(key, data))
            return self._faults.call(name, lambda: value(*given))

        return call
