"""Rewrites the files of Spark's checkpoint location for a pipeline whose sources were added, removed or reordered.

Spark's offset log has a line per position in the plan, and a source keeps files in ``sources/<number>``; both depend on the position.
Source: ``OffsetSeqLog`` and ``MicroBatchExecution`` of Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from statefulspark.checkpoint.formats.pipeline import TICKS, SourceId
from statefulspark.checkpoint.spark.source_matching import match
from statefulspark.errors import CorruptDataError, NotRestorableError

_NO_OFFSET = "-"
_FIRST_TICK = json.dumps({"tick": 0})
_TICK = re.compile(r'^\{"tick": ?\d+\}$')
_SOURCES = "sources/"
_OFFSETS = "offsets/"
_HEADER_LINES = 2
"""Version and metadata."""


def realign(
    files: Mapping[str, bytes],
    before: Sequence[SourceId] | None,
    now: Sequence[SourceId],
    *,
    may_drop: bool = False,
    accepted: bool = False,
) -> dict[str, bytes]:
    """The files as Spark expects them for the sources ``now``.

    Args:
        files: Those of the checkpoint location, by relative path.
        before: Sources of the pipeline that wrote them; None if that is not stored.
        now: Sources of the pipeline that reads them.
        may_drop: True to discard the position of a source that is no longer read.
        accepted: True if the change is that of a stored record, which is repeated as it was made.

    Raises:
        NotRestorableError: it is not certain which source is which; names them and the remedy.
        CorruptDataError: an offset log does not fit the sources.
    """
    logs = {path: _lines(content) for path, content in files.items() if _is_log(path)}
    if not logs:
        return dict(files)
    newest = logs[max(logs, key=_number)]
    known = tuple(before) if before is not None else _guessed(newest[_HEADER_LINES:], now)
    if known == tuple(now):
        return dict(files)
    for path, lines in logs.items():
        if len(lines) != _HEADER_LINES + len(known):
            raise CorruptDataError(f"the log has {len(lines) - _HEADER_LINES} offsets of {len(known)} sources", path=path)
    folders = {each.number: _folder(files, each.number) for each in known}
    places = {source.number: place for place, source in reversed(list(enumerate(known)))}

    def same_position(one: int, other: int) -> bool:
        ends = [newest[_HEADER_LINES + places[number]] for number in (one, other)]
        return ends[0] == ends[1] and folders[one] == folders[other]

    found = match(known, now, same_position, may_drop=may_drop or accepted, accepted=accepted)
    result = {path: content for path, content in files.items() if not _is_log(path) and not path.startswith(_SOURCES)}
    for number, origin in found.items():
        if origin is not None:
            result |= {f"{_SOURCES}{number}/{name}": content for name, content in folders[origin].items()}
    for path, lines in logs.items():
        result[path] = "\n".join((*lines[:_HEADER_LINES], *(_offset(lines, source, found, places) for source in now))).encode()
    return result


def _offset(lines: Sequence[str], source: SourceId, found: Mapping[int, int | None], places: Mapping[int, int]) -> str:
    origin = found[source.number]
    if origin is not None:
        return lines[_HEADER_LINES + places[origin]]
    return _FIRST_TICK if source.provider == TICKS else _NO_OFFSET


def _guessed(offsets: Sequence[str], now: Sequence[SourceId]) -> tuple[SourceId, ...]:
    """Infer the sources from their offsets: tick offsets are recognized by their format; their uid does not matter."""
    ticks = [_TICK.match(offset) is not None for offset in offsets]
    if ticks == [source.provider == TICKS for source in now]:
        return tuple(now)
    users = [source for source in now if source.provider != TICKS]
    given = [offset for offset in offsets if _TICK.match(offset) is None]
    if len({source.number for source in users}) == 1 and len(set(given)) == 1:
        return _only_source(ticks, users[0])
    raise NotRestorableError(
        "the pipeline's sources changed, and the stored offsets were written by a release that did not record their sources",
        field="spec.job",
        remedy="Run the job with its old pipeline and this release until it has taken a checkpoint, then change the pipeline",
    )


def _only_source(ticks: Sequence[bool], user: SourceId) -> tuple[SourceId, ...]:
    """Sources of a plan with one relation beside ticks."""
    first = ticks.index(False)
    found = []
    for place, tick in enumerate(ticks):
        if tick:
            number = place if place < first else place - sum(not each for each in ticks[first + 1 : place])
            found.append(SourceId(provider=TICKS, identity=f"#{place}", label="ticks", feeds="", number=number))
        else:
            found.append(user.model_copy(update={"number": first}))
    return tuple(found)


def _folder(files: Mapping[str, bytes], number: int) -> dict[str, bytes]:
    prefix = f"{_SOURCES}{number}/"
    return {path.removeprefix(prefix): content for path, content in files.items() if path.startswith(prefix)}


def _is_log(path: str) -> bool:
    return path.startswith(_OFFSETS) and path.removeprefix(_OFFSETS).isdecimal()


def _number(path: str) -> int:
    return int(path.removeprefix(_OFFSETS))


def _lines(content: bytes) -> list[str]:
    return content.decode().split("\n")
