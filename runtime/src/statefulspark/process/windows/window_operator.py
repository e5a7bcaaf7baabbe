"""WindowOperator: runs windows as a keyed process function, with the rules of Flink's window operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from statefulspark.errors import InvalidInputError, type_name
from statefulspark.process.api.functions import KeyedProcessFunction, RuntimeContext, TimeDomain, TimerService
from statefulspark.process.api.metrics import LATE_RECORDS
from statefulspark.process.runner.key_rows import DueTimers, KeyedRows, KeyRowsFunction, Visit
from statefulspark.process.windows.assigners import MergingWindowAssigner, WindowAssigner
from statefulspark.process.windows.merging_windows import MergingWindows
from statefulspark.process.windows.session_forms import SessionForms, next_due
from statefulspark.process.windows.session_rows import SessionRows
from statefulspark.process.windows.simple_sessions import SimpleSessions
from statefulspark.process.windows.trigger_context import WindowTriggerContext
from statefulspark.process.windows.triggers import TriggerResult
from statefulspark.process.windows.window_contents import CombinedContents, WindowContents
from statefulspark.process.windows.window_results import ProcessWindowContext, WindowResults
from statefulspark.process.windows.window_states import SelectedWindow
from statefulspark.process.windows.window_timers import WindowTimers
from statefulspark.process.windows.windowing import Windowing
from statefulspark.process.windows.windows import CountWindow, TimeWindow, Window
from statefulspark.state.timers import TIMESTAMP_MS_MAX

if TYPE_CHECKING:
    from statefulspark.process.api.contexts import ElementContext, TimerContext

__all__ = ["WindowOperator"]


class WindowOperator(KeyRowsFunction):
    """Adds each row to its windows, and emits windows when their trigger fires.

    Nothing is kept in attributes between rows but what is read again for each of them, so retries and restores need nothing special.

    Args:
        windowing: How the stream is cut.
        contents: What windows keep.
        results: What they emit.
        late_row: Makes the row for the side output of a late one.
    """

    def __init__(self, windowing: Windowing, contents: WindowContents, results: WindowResults, late_row: Callable[[Any], Any]) -> None:
        self._windowing = windowing
        self._contents = contents
        self._results = results
        self._late_row = late_row

    def open(self, runtime_context: RuntimeContext) -> None:
        windowing = self._windowing
        self._assigner, self._trigger = windowing.assigner, windowing.trigger
        self._event_time = windowing.assigner.is_event_time()
        self._serializer = windowing.serializer
        self._lateness_ms = windowing.allowed_lateness_ms
        self._selected = SelectedWindow()
        self._service: TimerService | None = None
        self._assigner_context = _AssignerContext(runtime_context)
        scope = f"{windowing.kind}, {self._contents.name}"
        self._timers = WindowTimers(runtime_context, scope, self._serializer.width)
        self._context = WindowTriggerContext(runtime_context, scope, self._timers, self._selected)
        self._function_context = ProcessWindowContext(runtime_context, scope, self._selected, merges=windowing.merges)
        assigner = windowing.assigner
        self._none_late_at: int | None = None
        """Watermark by which none of the sessions that are loaded is late."""
        self._merging = MergingWindows(runtime_context, scope, assigner) if isinstance(assigner, MergingWindowAssigner) else None
        self._contents.open(runtime_context, scope)
        self._combined = self._contents if isinstance(self._contents, CombinedContents) else None
        self._forms: SessionForms | None = None
        self._sessions: SessionRows | None = None
        self._simple: SimpleSessions | None = None
        if self._merging is not None and self._combined is not None:
            parts = (self._combined, self._timers, self._context.states)
            self._forms = SessionForms(runtime_context, scope, *parts, lateness_ms=self._lateness_ms)
            self._sessions = SessionRows.of(windowing, self._combined, self._forms)
            if self._sessions is not None:
                self._simple = SimpleSessions.of(windowing, self._combined, self._forms, self._sessions)
        self._results.open(runtime_context)
        self._late_records = runtime_context.get_metrics_group().counter(LATE_RECORDS)

    def close(self) -> None:
        self._results.close()
        self._contents.close()

    def process_keys(self, several: Iterable[KeyedRows], ctx: ElementContext) -> Iterator[Any]:
        sessions, forms, simple = self._sessions, self._forms, self._simple
        if sessions is None or forms is None:
            yield from super().process_keys(several, ctx)
            return
        self._enter(ctx)
        service, emit, late = self._context.service, self._emitted, self._late
        cleared = self._cleared if self._results.clears else None
        for keyed in several:
            if simple is not None and forms.all_joint and keyed.distinct:
                visits: Iterable[Visit] = map(keyed.visit, simple.add(keyed, ctx.timer_service()))
            else:
                visits = keyed.visits()
            for rows, times in visits:
                if forms.all_joint or forms.load(service):
                    if emitted := sessions.add(rows, times, service, emit, late, cleared):
                        yield from emitted
                else:
                    yield from super().process_rows(rows, times, ctx)

    def on_timers(self, due: DueTimers, ctx: TimerContext) -> Iterator[Any]:
        sessions, forms, simple = self._sessions, self._forms, self._simple
        if sessions is None or forms is None or ctx.time_domain() is not TimeDomain.EVENT_TIME:
            yield from super().on_timers(due, ctx)
            return
        self._enter(ctx)
        service, emit = self._context.service, self._emitted
        cleared = self._cleared if self._results.clears else None
        if simple is not None and forms.all_joint and cleared is None and not self._lateness_ms:
            for fired in due.together:
                yield from simple.fire(
                    fired, ctx.timer_service(), emit, read_ahead=self._function_context.uses_state or self._results.opens
                )
            return
        for timestamp in due.one_by_one:
            if forms.all_joint or forms.load(service, timestamp):
                yield from sessions.fire(timestamp, service, emit, cleared)
            else:
                yield from self._fired(timestamp, ctx)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        self._enter(ctx)
        if self._forms is not None:
            self._forms.split(self._context.service, next_due(self._context.service))
        timestamp = ctx.timestamp()
        windows: Iterable[Window] | None = self._assigner.assign_windows(value, timestamp, self._assigner_context)
        if windows is None:
            raise InvalidInputError("assign_windows returned None", field="window", remedy="Return a list of windows")
        emitted: list[Any] = []
        late = True
        if self._merging is not None:
            self._end_late(self._merging)
        for window in windows:
            in_flight, contents = self._placed(window)
            if self._is_late(in_flight):
                if self._merging is not None and isinstance(in_flight, TimeWindow):
                    self._merging.retire(in_flight)
                continue
            late = False
            self._contents.add(contents, value, timestamp)
            self._select(in_flight)
            result = self._trigger.on_element(value, timestamp, in_flight, self._context)
            self._handle(result, in_flight, contents, emitted)
            self._register_cleanup(in_flight)
        if self._merging is not None:
            self._merging.save()
        if late and self._event_time and timestamp is not None and timestamp + self._lateness_ms <= self._watermark():
            return self._late(value)
        return emitted or None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        return self._fired(timestamp, ctx) or None

    def _fired(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
        """Handle a timer of windows that are not joint sessions."""
        self._enter(ctx)
        domain = ctx.time_domain()
        emitted: list[Any] = []
        event_time = domain is TimeDomain.EVENT_TIME
        if self._forms is not None:
            service = self._context.service
            self._forms.split(service, timestamp if event_time else next_due(service))
        for data in self._timers.fired(domain, timestamp):
            window = self._serializer.deserialize(data)
            if self._merging is not None and self._merging.load():
                self._none_late_at = None
            contents = self._contents_of(window)
            if contents is None:
                continue
            self._select(window)
            handle = self._trigger.on_event_time if event_time else self._trigger.on_processing_time
            self._handle(handle(timestamp, window, self._context), window, contents, emitted)
            if event_time is self._event_time:
                if timestamp >= self._cleanup_time(window):
                    self._clean_up(window, contents)
                else:
                    # The lateness may have changed since the cleanup timer was registered.
                    self._register_cleanup(window)
        return emitted

    def _end_late(self, merging: MergingWindows) -> None:
        """Load sessions, and remove those that should have ended: the lateness is less than when their cleanup timers were registered."""
        watermark = self._watermark() if self._event_time else None
        if not merging.load() and watermark == self._none_late_at:
            return  # a row adds no late session
        for window in merging.in_flight() if self._event_time else ():
            contents = self._contents_of(window) if self._is_late(window) else None
            if contents is not None:
                self._select(window)
                self._clean_up(window, contents)
        self._none_late_at = watermark

    def _enter(self, ctx: KeyedProcessFunction.Context) -> None:
        self._ctx = ctx
        service = ctx.timer_service()
        if service is not self._service:
            self._service = self._assigner_context.service = self._context.service = self._function_context.service = service

    def _watermark(self) -> int:
        return self._context.service.current_watermark()

    def _select(self, window: Window) -> None:
        self._selected.data = self._serializer.serialize(window)

    def _placed(self, window: Window) -> tuple[Window, bytes]:
        """Return the window in flight that a row's window belongs to, and under which bytes its contents are kept."""
        if self._merging is None:
            return window, self._serializer.serialize(window)
        if not isinstance(window, TimeWindow):
            raise InvalidInputError(f"assign_windows returned {type_name(type(window))}", field="window", remedy="Return TimeWindows")
        in_flight = self._merging.add(window, self._merged)
        kept = self._merging.state_window(in_flight)
        return in_flight, self._serializer.serialize(in_flight if kept is None else kept)

    def _contents_of(self, window: Window) -> bytes | None:
        """Return under which bytes the contents of a window are kept, None if it is no longer in flight."""
        if self._merging is None:
            return self._serializer.serialize(window)
        kept = self._merging.state_window(window) if isinstance(window, TimeWindow) else None
        return None if kept is None else self._serializer.serialize(kept)

    def _merged(self, result: TimeWindow, merged: list[TimeWindow], kept: TimeWindow, moved: list[TimeWindow]) -> None:
        """Handle that windows of the current key have become one."""
        end, now = (self._cleanup_time(result), self._watermark()) if self._event_time else (result.max_timestamp(), self._now())
        if end <= now:
            raise InvalidInputError(
                f"merge_windows merged windows into one that ends at {result.end}, which has passed",
                field="window",
                remedy="Merge windows into one that contains them all",
            )
        context = self._context
        context.merged = [self._serializer.serialize(each) for each in merged if each != result]
        self._select(result)
        self._trigger.on_merge(result, context)
        context.merged = ()
        for window in merged:
            if window != result:
                self._select(window)
                self._trigger.clear(window, context)
                context.states.clear()
                self._delete_cleanup(window)
        self._contents.merge(self._serializer.serialize(kept), [self._serializer.serialize(each) for each in moved])

    def _handle(self, result: object, window: Window, contents: bytes, emitted: list[Any]) -> None:
        """Do what the trigger of the selected window says."""
        if not isinstance(result, TriggerResult):
            raise InvalidInputError(
                f"{type(self._trigger).__name__} returned {result!r}", field="trigger", remedy="Return a TriggerResult from every method"
            )
        if result.is_fire():
            context = self._function_context
            context.fired = window
            emitted.extend(
                self._contents.fired(
                    contents, window, self._context, lambda elements: self._results.of(self._ctx.get_current_key(), context, elements)
                )
            )
        if result.is_purge():
            self._contents.clear(contents)
            if window.__class__ is CountWindow:
                # No later row belongs to it, and no time ends it.
                self._clean_up(window, contents)

    def _emitted(self, window: Window, entry: Any) -> list[Any]:
        """Return the output rows of combined contents."""
        context = self._function_context
        context.fired = window
        elements = None if self._combined is None else self._combined.elements(entry)
        return [] if elements is None else self._results.of(self._ctx.get_current_key(), context, elements)

    def _clean_up(self, window: Window, contents: bytes) -> None:
        """Remove everything of the selected window."""
        self._contents.clear(contents)
        self._trigger.clear(window, self._context)
        self._context.states.clear()
        self._cleared(window)
        self._function_context.clear()
        self._delete_cleanup(window)
        if self._merging is not None and isinstance(window, TimeWindow):
            self._merging.retire(window)
            self._merging.save()

    def _cleared(self, window: Window) -> None:
        """Let the window function handle that a window is removed."""
        self._function_context.fired = window
        self._results.clear(self._function_context)

    def _is_late(self, window: Window) -> bool:
        return self._event_time and self._cleanup_time(window) <= self._watermark()

    def _now(self) -> int:
        return self._context.service.current_processing_time()

    def _cleanup_time(self, window: Window) -> int:
        latest = window.max_timestamp()
        return min(latest + self._lateness_ms, TIMESTAMP_MS_MAX) if self._event_time else latest

    def _register_cleanup(self, window: Window) -> None:
        time = self._cleanup_time(window)
        if time == TIMESTAMP_MS_MAX:
            return
        if self._event_time:
            self._context.register_event_time_timer(time)
        else:
            self._context.register_processing_time_timer(time)

    def _delete_cleanup(self, window: Window) -> None:
        time = self._cleanup_time(window)
        if time == TIMESTAMP_MS_MAX:
            return
        if self._event_time:
            self._context.delete_event_time_timer(time)
        else:
            self._context.delete_processing_time_timer(time)

    def _late(self, value: Any) -> Iterable[Any] | None:
        tag = self._windowing.late_tag
        if tag is None:
            self._late_records.inc()
            return None
        return [(tag, self._late_row(value))]


class _AssignerContext(WindowAssigner.WindowAssignerContext):
    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self.service: Any = None

    def get_current_processing_time(self) -> int:
        time: int = self.service.current_processing_time()
        return time

    def get_runtime_context(self) -> RuntimeContext:
        return self._context
