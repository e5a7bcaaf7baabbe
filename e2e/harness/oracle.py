"""What the counting job must have given out, from the definition of its source alone. Pure; imports nothing of the system.

Number n has the key n modulo ``keys``, so it is the (n // keys + 1)-th of its key, and the state of its key is a pad that follows from the
key. Every batch must be there, at every attempt with the same rows; together they must hold each number from 0 on exactly once.
"""

from __future__ import annotations

import functools
import itertools
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One object of the sink: what one attempt at a batch gave out."""

    batch: int
    at_ms: int
    """When it was written, by the clock of the driver's node."""
    rows: tuple[tuple[int, int, int, int], ...]
    """Number, count, checksum of the pad, version of the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output that was found right."""

    batches: int
    numbers: int
    """0 .. numbers - 1 went out, once each."""
    repeated: int
    """Attempts beyond the first of their batch, all the same."""
    codes: tuple[int, ...]
    """Versions of the code in the order in which they took over: twice if one came back."""


def check(written: Iterable[Written], *, keys: int, pad_bytes: int) -> Output:
    """Compare all output with what it must be.

    Raises:
        AssertionError: rows were lost, doubled or are wrong; names the first ones.
    """
    batches: dict[int, Written] = {}
    repeated = 0
    for each in sorted(written, key=lambda each: each.at_ms):
        first = batches.setdefault(each.batch, each)
        if first is not each:
            repeated += 1
            assert plain(first) == plain(each), f"batch {each.batch} gave out other rows when it was run again"
    rows = [row for number in sorted(batches) for row in batches[number].rows]
    times = Counter(row[0] for row in rows)
    doubled = [number for number, count in times.items() if count > 1]
    lost = [number for number in range(len(times)) if number not in times]
    assert not doubled, f"{len(doubled)} numbers went out more than once: {sorted(doubled)[:5]}"
    assert not lost, f"{len(lost)} numbers never went out: {lost[:5]}"
    for number, count, pad, _ in rows:
        assert count == number // keys + 1, f"{number} is number {number // keys + 1} of its key, but went out as {count}"
        assert pad == pad_checksum(number % keys, pad_bytes), f"the state of key {number % keys} is not what was put there"
    codes = (code for code, _ in itertools.groupby(row[3] for row in rows))
    return Output(batches=len(batches), numbers=len(times), repeated=repeated, codes=tuple(codes))


def plain(written: Written) -> list[tuple[int, int, int]]:
    """The rows of an attempt in one order, whoever wrote them."""
    return sorted(row[:3] for row in written.rows)


@functools.cache
def pad_checksum(key: int, size_bytes: int) -> int:
    """Checksum of the pad of a key."""
    return zlib.crc32(random.Random(key).randbytes(size_bytes))


def pause_s(written: Sequence[Written], since_ms: int) -> float:
    """The longest time without a batch that had not been there before, seconds, among those that ended after ``since_ms``."""
    first: dict[int, int] = {}
    for each in written:
        first[each.batch] = min(each.at_ms, first.get(each.batch, each.at_ms))
    at_ms = sorted(first.values())
    gaps = [later - earlier for earlier, later in itertools.pairwise(at_ms) if later > since_ms]
    assert gaps, "no output since then"
    return max(gaps) / 1000
