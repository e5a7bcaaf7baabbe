"""StepChangelogs: the changelogs of one keyed step in one slot, those it writes and those it catches up with."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from statefulspark.checkpoint.formats.changelog import ChangelogHeader
from statefulspark.checkpoint.formats.digests import FileDigest
from statefulspark.checkpoint.formats.paths import changelog_key
from statefulspark.checkpoint.formats.records import ChangelogRef
from statefulspark.checkpoint.restore.broadcast_state import StoredBroadcastState
from statefulspark.checkpoint.restore.merged_states import MergedStates
from statefulspark.checkpoint.restore.operator_state import StoredOperatorState
from statefulspark.checkpoint.restore.replay import replay
from statefulspark.exchange.config import SlotConfig
from statefulspark.keygroups import key_group_range
from statefulspark.process.rows.value_times import InputValueTimes
from statefulspark.rpc.flight import FlightPeer
from statefulspark.rpc.messages.batches import BatchRun
from statefulspark.rpc.messages.slots import Changelogs
from statefulspark.state.store.base import KeyValueStore

_CATCH_UP_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The changelog of a batch: durable, or on its way to the driver."""

    ref: ChangelogRef | None = None
    """None unless it is durable."""
    inline: bytes | None = None
    """The changelog, if the driver is to store it."""
    size_bytes: int = 0


NO_CHANGELOG = HandedOver()
"""Of a batch without changelogs."""


class StepChangelogs:
    """Names, writes and reads the changelogs of one uid in one incarnation of a slot.

    Args:
        uid: the step.
        config: the slot's configuration.
        slot: number of the slot.
        epoch: its incarnation.
        coordinator: the coordinator, which knows the changelogs of committed batches.

    Attributes:
        key_groups: those of the slot.
    """

    def __init__(self, uid: str, *, config: SlotConfig, slot: int, epoch: int, coordinator: FlightPeer) -> None:
        self.key_groups = key_group_range(slot, config.parallelism, config.max_parallelism)
        self._uid = uid
        self._config = config
        self._slot = slot
        self._epoch = epoch
        self._coordinator = coordinator

    def header(
        self,
        batch: int,
        *,
        event_times_ms: tuple[int | None, int | None],
        event_times_by_value: InputValueTimes,
        states: Iterable[dict[str, Any]],
        operator_state: Literal["all", "changed"] | None,
        broadcast: tuple[str, int] | None = None,
    ) -> ChangelogHeader:
        """Return the header of the changelog of ``batch``.

        Args:
            batch: the batch.
            event_times_ms: greatest event time of its rows, per input.
            event_times_by_value: the same by value of ``watermark_by``.
            states: descriptions of all states of the step.
            operator_state: what the operator frame has; None if there is no frame.
            broadcast: digest of its broadcast rows and number of the query; None if there were no such rows.
        """
        first_ms, second_ms = event_times_ms
        digest, query = broadcast or (None, None)
        return ChangelogHeader(
            uid=self._uid,
            slot=self._slot,
            batch=batch,
            epoch=self._epoch,
            first_key_group=self.key_groups.first,
            last_key_group=self.key_groups.last,
            max_event_time_ms=first_ms,
            second_max_event_time_ms=second_ms,
            event_times_by_value=event_times_by_value if any(event_times_by_value) else None,
            states=tuple(states),
            operator_state=operator_state,
            parallelism=self._config.parallelism if operator_state is not None else None,
            broadcast_digest=digest,
            broadcast_query=query,
        )

    def hand_over(self, run: BatchRun, batch: int, path: Path, digest: FileDigest) -> HandedOver:
        """Read a small changelog, for the driver to store it with others, or upload it. One without changes counts too: it proves that the batch was processed here."""
        if digest.size_bytes <= run.inline_bytes:
            return HandedOver(inline=path.read_bytes(), size_bytes=digest.size_bytes)
        key = changelog_key(run.attempt, batch, self._uid, self._slot, self._epoch)
        self._config.store.put_file(key, path)
        ref = ChangelogRef(
            uid=self._uid,
            slot=self._slot,
            first=self.key_groups.first,
            last=self.key_groups.last,
            batch=batch,
            epoch=self._epoch,
            key=key,
            size_bytes=digest.size_bytes,
            checksum=digest.checksum,
        )
        return HandedOver(ref=ref, size_bytes=digest.size_bytes)

    def catch_up(self, store: KeyValueStore, *, after: int, until: int, work: Path) -> tuple[StoredOperatorState, StoredBroadcastState]:
        """Apply the changelogs of committed batches that other incarnations of the slot wrote.

        Args:
            store: holds the state after the batch ``after``.
            after: last batch in the store.
            until: last batch that is wanted.
            work: local folder for downloads.

        Returns:
            The lists of operator state and the broadcast state in those changelogs.
        """
        request = Changelogs(uid=self._uid, key_groups=self.key_groups, after=after, until=until)
        refs = self._coordinator.call(request).changelogs
        stored, broadcast = StoredOperatorState(slot=self._slot), StoredBroadcastState(self._slot)
        replay(
            self._config.store,
            refs,
            store,
            self.key_groups,
            folder=work / f"catch-up-{secrets.token_hex(4)}",
            merged=MergedStates(),
            threads=_CATCH_UP_THREADS,
            operator_state=(stored, broadcast),
        )
        return stored, broadcast
