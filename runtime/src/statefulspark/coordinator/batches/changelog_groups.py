"""ChangelogGroups: the changelogs of the running batch that the driver stores, several in one object.

A slot sends a small changelog with its acknowledgement. Once every slot of every keyed step has processed the batch or had no rows, the driver
stores what it was sent, before it answers the last of them. A sink that has read everything has all answers, so it commits no
batch that is not durable. What was sent for a batch that does not get that far is lost with the driver, and the batch runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from statefulspark.checkpoint.formats.changelog_group import encode_group
from statefulspark.checkpoint.formats.digests import digest_bytes
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.coordinator.batches.changelogs import WITHOUT_ROWS_EPOCH, BatchChangelogs, WithoutRows
from statefulspark.coordinator.batches.log import BatchLog
from statefulspark.keygroups import KeyGroupRange
from statefulspark.rpc.messages.batches import Acknowledge

GROUP_BYTES: Final = 1 << 20
"""An object with more than one changelog has at most so many bytes of them: each slot that restores downloads whole objects."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unstored:
    """A changelog that is not durable."""

    uid: str
    slot: int
    key_groups: KeyGroupRange
    epoch: int
    data: bytes
    ack: Acknowledge | None = None
    """The acknowledgement that it came with; None for slots without rows."""
    is_proof: bool = False
    """True if it only proves that slots had no rows, so that no record has to name it."""


Stored = tuple[Unstored, ChangelogRef]


class ChangelogGroups:
    """Of one attempt; the caller guards all but `store` with the coordinator's lock.

    Args:
        changelogs: Of batches, in storage.
        batches: The job's batches.
        key_groups: Returns the key groups of a slot.
    """

    def __init__(self, changelogs: BatchChangelogs, batches: BatchLog, key_groups: Callable[[int], KeyGroupRange]) -> None:
        self._changelogs = changelogs
        self._batches = batches
        self._key_groups = key_groups
        self._without_rows: list[Unstored] = []

    def begin(self) -> None:
        """Forget what is not stored, because another batch begins."""
        self._without_rows = []

    def add_without_rows(self, batch: int, uid: str, slots: Iterable[int], operator_state: WithoutRows | None) -> None:
        """Slots had no rows in the running batch; arguments as those of `BatchChangelogs.write_without_rows`."""
        with_groups = [(slot, self._key_groups(slot)) for slot in slots]
        for header, data in self._changelogs.encode_without_rows(batch, uid, with_groups, operator_state):
            self._without_rows.append(
                Unstored(
                    uid=uid,
                    slot=header.slot,
                    key_groups=KeyGroupRange(header.first_key_group, header.last_key_group),
                    epoch=WITHOUT_ROWS_EPOCH,
                    data=data,
                    is_proof=operator_state is None,
                )
            )

    def unstored(self) -> list[Unstored]:
        """Return the changelogs of the running batch that are not durable, those of a slot side by side, so that it finds them in one object."""
        sent = [
            Unstored(uid=uid, slot=slot, key_groups=self._key_groups(slot), epoch=ack.epoch, data=ack.inline, ack=ack)
            for (uid, slot), ack in self._batches.acknowledgements.items()
            if isinstance(ack, Acknowledge) and ack.inline is not None
        ]
        return sorted((*sent, *self._without_rows), key=lambda each: (each.slot, each.uid, each.epoch))

    def store(self, batch: int, changelogs: Sequence[Unstored]) -> list[Stored]:
        """Make changelogs of ``batch`` durable. If this fails in between, some may be, which does no harm: names are never used twice.

        Raises:
            UnavailableError: Storage did not answer.
        """
        return [stored for piece in _pieces(changelogs) for stored in self._store_piece(batch, piece)]

    def _store_piece(self, batch: int, piece: Sequence[Unstored]) -> Iterator[Stored]:
        # One alone is stored as a slot stores it, which earlier releases read.
        alone = len(piece) == 1
        data = piece[0].data if alone else encode_group(each.data for each in piece)
        key = self._changelogs.put(batch, data, of=(piece[0].uid, piece[0].slot, piece[0].epoch) if alone else None)
        digest = digest_bytes(data)
        for member, each in enumerate(piece):
            yield (
                each,
                ChangelogRef(
                    uid=each.uid,
                    slot=each.slot,
                    first=each.key_groups.first,
                    last=each.key_groups.last,
                    batch=batch,
                    epoch=each.epoch,
                    key=key,
                    size_bytes=digest.size_bytes,
                    checksum=digest.checksum,
                    member=None if alone else member,
                ),
            )

    def stored(self, changelogs: Iterable[Stored]) -> None:
        """Take up that changelogs of the running batch are durable. An acknowledgement that was replaced meanwhile stays unstored."""
        for each, ref in changelogs:
            key, ack = (each.uid, each.slot), each.ack
            if ack is not None:
                if self._batches.acknowledgements.get(key) is ack:
                    self._batches.acknowledgements[key] = replace(ack, changelog=ref, inline=None)
            elif each in self._without_rows:
                self._without_rows.remove(each)
                self._batches.without_rows += [] if each.is_proof else [ref]


def _pieces(changelogs: Iterable[Unstored]) -> Iterator[list[Unstored]]:
    """Changelogs that go into one object each."""
    piece: list[Unstored] = []
    size_bytes = 0
    for each in changelogs:
        if piece and size_bytes + len(each.data) > GROUP_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(each)
        size_bytes += len(each.data)
    if piece:
        yield piece
