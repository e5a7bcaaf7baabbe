"""Metrics of the user's function on their way to the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from statefulspark import RuntimeContext
from statefulspark.process.api.metrics import UserMetric
from statefulspark.rpc.codec import decode, encode
from statefulspark.rpc.messages.heartbeat import Heartbeat, SlotReport

from .one_slot import UID, Count, Slot


class Measured(Count):
    """Registers metrics as careless code does."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        group: Any = runtime_context.get_metrics_group()
        group.gauge("half", lambda: Decimal("0.5"))
        group.counter("caf\udce9").inc(2)


def test_names_and_values_that_cannot_be_sent_do_not_end_the_slot(make_slot: Callable[..., Slot]) -> None:
    """A name that is not Unicode arrives with a question mark, and a gauge's value as a float."""
    slot = make_slot(1 << 20, Measured())
    slot.run(0, [1])
    report = slot.service.keyed_steps[UID].report()
    assert report.user == {"half": UserMetric(kind="gauge", value=0.5), "caf?": UserMetric(kind="counter", value=2.0)}
    sent = Heartbeat(
        slot=0,
        epoch=1,
        report=SlotReport(
            restore_ms=0, rss_bytes=0, pss_bytes=0, baseline_bytes=0, state_bytes=0, coverage=1.0, states={}, steps={UID: report}
        ),
    )
    assert decode(encode(sent), Heartbeat) == sent
