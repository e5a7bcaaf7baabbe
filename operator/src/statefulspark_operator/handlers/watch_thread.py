"""Runs kopf in its own thread and event loop, and restarts it when it terminates.

kopf treats every task of its event loop as its own: on exit it cancels and awaits them all, and it takes over the signals of the main thread.
A single failing watch terminates it but leaves the other watches running, which swallow a cancellation that arrives together with that of the
tasks they wait for. In the operator's own loop this kept a process alive that held the Lease and watched nothing. So this module ends kopf
itself: the watches first, then the other tasks, within a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiohttp
import kopf
import structlog

from statefulspark_operator.handlers.watch_health import WatchHealth, WatchResponse
from statefulspark_operator.handlers.watches import EventCallback, login_session, watch_registry, watch_settings

_log = structlog.get_logger("statefulspark.operator.watches")
_RESTART_S: Final = 5.0
_DOWN_S: Final = 60.0
_LOGIN_S: Final = 5.0
_END_S: Final = 10.0
_TASKS_END_S: Final = 3.0
_BACKOFFS_S: Final = (0.5, 1.0, 2.0, 3.0, 5.0)
_BACKOFF_MAX_S: Final = 10.0


class EndlessBackoff:
    """Endless backoff between the attempts of a request: a rejected watch must not end those of other namespaces."""

    def __iter__(self) -> Iterator[float]:
        """The pauses in seconds."""
        yield from _BACKOFFS_S
        while True:
            yield _BACKOFF_MAX_S


class WatchThread:
    """Watches through kopf.

    Args:
        namespaces: Namespaces to watch; the whole cluster when empty.
        on_event: Called in the operator's event loop with each watch event.
        watch_health: Notified in the operator's event loop of each request.
    """

    def __init__(self, namespaces: tuple[str, ...], *, on_event: EventCallback, watch_health: WatchHealth) -> None:
        self._namespaces = namespaces
        self._on_event = on_event
        self._watches = watch_health
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._down_since: float | None = None
        self._login_s = -_LOGIN_S
        self._stop: Callable[[], object] = lambda: None

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._thread, args=(loop,), name="kopf", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._ended.set()
            self._stop()
            # A daemon thread: if it does not end, it blocks neither the process nor the release of the Lease.
            await asyncio.to_thread(thread.join, _END_S)

    def is_ready(self) -> bool:
        """True once kopf has reached the API server."""
        return self._ready.is_set()

    def problem(self) -> str | None:
        """Reason to restart the process; None if the watches make progress or are being retried."""
        down_since = self._down_since
        if down_since is not None and (down_s := time.monotonic() - down_since) > _DOWN_S:
            return f"kopf has not been running for {down_s:.0f} s"
        return self._watches.problem()

    def _thread(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended.is_set():
            inner = asyncio.new_event_loop()
            # Tasks left over when the loop is closed belong to kopf.
            inner.set_exception_handler(lambda _loop, context: _log.debug("kopf", error=str(context.get("message"))))
            try:
                inner.run_until_complete(self._kopf(loop))
            except Exception as error:  # noqa: BLE001  whatever it is, watching goes on
                _log.warning("kopf terminated, restarting it", restart_after_s=_RESTART_S, error=f"{type(error).__name__}: {error}"[:300])
            finally:
                inner.close()
            self._down_since = self._down_since or time.monotonic()
            self._ended.wait(_RESTART_S)

    async def _kopf(self, loop: asyncio.AbstractEventLoop) -> None:
        stop = asyncio.Event()
        self._stop = _across(asyncio.get_running_loop(), stop.set)
        if self._ended.is_set():
            return
        registry = watch_registry(_across(loop, self._on_event))
        sessions: list[aiohttp.ClientSession] = []
        trace = _trace(_across(loop, self._watches.record))

        @kopf.on.login(registry=registry)
        async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
            # kopf logs in again at each refusal of a token, without a pause.
            await asyncio.sleep(max(0.0, self._login_s + _LOGIN_S - time.monotonic()))
            self._login_s = time.monotonic()
            session = login_session([trace], **kwargs)
            if session is not None:
                sessions.append(session.aiohttp_session)
            return session

        settings = watch_settings()
        settings.networking.error_backoffs = EndlessBackoff()
        _across(loop, self._watches.started)()
        parts = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            ready_flag=self._ready,
        )
        try:
            up = asyncio.create_task(self._up())
            done, _ = await asyncio.wait([*parts, asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
        finally:
            await _end_all()
            for session in sessions:
                await session.close()
        for part in done:
            part.result()

    async def _up(self) -> None:
        """Marks kopf as up once it has run for a while. If it terminates again within seconds, it counts as down throughout."""
        await asyncio.sleep(2 * _RESTART_S)
        self._down_since = None


def _across(loop: asyncio.AbstractEventLoop, function: Callable[..., object]) -> Callable[..., None]:
    """Wraps ``function`` for calls from another thread: it runs later in ``loop``, or not at all if the loop is closed."""

    def call(*arguments: object) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *arguments)

    return call


async def _end_all() -> None:
    """Cancels every other task of this loop, within a limited time."""
    for chosen in (lambda task: task.get_name().startswith("watcher for"), lambda _: True):
        tasks = {task for task in asyncio.all_tasks() - {asyncio.current_task()} if chosen(task)}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_TASKS_END_S)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # told already


def _trace(seen: Callable[[WatchResponse], None]) -> aiohttp.TraceConfig:
    """Reports each request for objects."""
    trace = aiohttp.TraceConfig()

    async def ended(_session: object, _context: object, params: aiohttp.TraceRequestEndParams) -> None:
        report(params.url, params.response.status)

    async def failed(_session: object, _context: object, params: aiohttp.TraceRequestExceptionParams) -> None:
        report(params.url, 0)

    def report(url: Any, code: int) -> None:
        answer = response_to(url.path, listing="watch" not in url.query, code=code)
        if answer is not None:
            seen(answer)

    trace.on_request_end.append(ended)
    trace.on_request_exception.append(failed)
    return trace


def response_to(path: str, *, listing: bool, code: int) -> WatchResponse | None:
    """The watch that a request of kopf belongs to; None for other requests, such as discovery."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    match rest:
        case ["namespaces", namespace, plural]:
            return WatchResponse(namespace=namespace, plural=plural, listing=listing, code=code)
        case [plural]:
            return WatchResponse(namespace=None, plural=plural, listing=listing, code=code)
        case _:
            return None
