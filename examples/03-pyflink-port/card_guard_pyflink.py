# ruff: noqa: ANN001, ANN201 - the function is kept as it was written for PyFlink
"""The function as it runs on Apache Flink. ``card_guard.py`` beside it differs in the imports only; a test compares them."""

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor, ReducingStateDescriptor, ValueStateDescriptor

HOUR_MS = 60 * 60 * 1000
LIMIT_CENTS = 100_000


class CardGuard(KeyedProcessFunction):
    """Report a card that spends more than 1,000.00 within an hour; a payment is forgotten when its hour is over."""

    def open(self, runtime_context: RuntimeContext):
        """Ask for the payments of the last hour, the largest payment ever and the number of reports."""
        self.payments = runtime_context.get_map_state(MapStateDescriptor("payments", Types.LONG(), Types.LONG()))
        self.largest = runtime_context.get_reducing_state(ReducingStateDescriptor("largest", max, Types.LONG()))
        self.reports = runtime_context.get_state(ValueStateDescriptor("reports", Types.INT()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        """Add a payment and judge the hour that ends with it."""
        now_ms = ctx.timestamp()
        self.payments.put(now_ms, (self.payments.get(now_ms) or 0) + value.cents)
        self.largest.add(value.cents)
        ctx.timer_service().register_event_time_timer(now_ms + HOUR_MS)
        spent = sum(cents for at_ms, cents in self.payments.items() if now_ms - HOUR_MS < at_ms <= now_ms)
        if spent > LIMIT_CENTS:
            self.reports.update((self.reports.value() or 0) + 1)
            yield Row(value.card, now_ms, spent, self.largest.get(), self.reports.value())

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        """Forget the payment whose hour is over."""
        self.payments.remove(timestamp - HOUR_MS)
