"""Runs the asynchronous client in an event loop in a separate thread, for synchronous callers.

The client belongs to one event loop, and a notebook cell runs inside another. The thread starts with the
first call and ends with the interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Generic, ParamSpec, TypeVar

from paddlejob.client.errors import ClientError
from paddlejob.kube.errors import KubeError
from paddlejob.sdk.errors import to_job_error

P = ParamSpec("P")
T = TypeVar("T")
Close = Callable[[], Awaitable[None]]

QUEUED_ITEMS = 16
STOP_SECONDS = 5.0
"""How long an interrupted call may take to close its connections."""


class Background:
    """The event loop and its calls. Methods may be called from every thread except the loop's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an asynchronous function and return its result. Ctrl-C cancels it. Raises JobError."""
        work = _Work(self._running(), lambda: function(*args, **kwargs))
        try:
            return work.begin().result()
        except (ClientError, KubeError) as error:
            raise to_job_error(error) from None
        finally:
            work.stop()

    async def call_async(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an asynchronous function without blocking the caller's event loop. Raises JobError."""
        work = _Work(self._running(), lambda: function(*args, **kwargs))
        try:
            return await asyncio.wrap_future(work.begin())
        except (ClientError, KubeError) as error:
            raise to_job_error(error) from None

    def iterate(self, source: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
        """Yield the items of an asynchronous generator; close it when the caller stops. Raises JobError."""
        queue: asyncio.Queue[T | _End] = asyncio.Queue(QUEUED_ITEMS)

        async def pump() -> None:
            end = _End()
            try:
                async with contextlib.aclosing(source()) as items:
                    async for item in items:
                        await queue.put(item)
            except (ClientError, KubeError) as error:
                end = _End(to_job_error(error))
            except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
                end = _End(error)
            await queue.put(end)

        work = _Work(self._running(), pump)
        try:
            work.begin()
            while not isinstance(item := self.call(queue.get), _End):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            work.stop()

    def close_with(self, owner: object, close: Close) -> None:
        """Call `close` in the loop when the owner is garbage-collected, or at exit."""
        thread = self._running()
        thread.closers.add(close)
        weakref.finalize(owner, thread.close_one, close).atexit = False

    def _running(self) -> _LoopThread:
        with self._lock:
            # A forked process has the object but not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = _LoopThread()
                self._thread.start()
                atexit.unregister(self.close)
                atexit.register(self.close)
            return self._thread

    def close(self) -> None:
        """End all calls, connections and the thread. The next call starts a new thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.end()


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="paddlejob-sdk", daemon=True)
        self.loop = asyncio.new_event_loop()
        self.closers: set[Close] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            # `asyncio.run` would start a thread to shut down the executor, which fails at exit.
            self.loop.close()

    def close_one(self, close: Close) -> None:
        """Call `close` in the loop. The garbage collector calls this method in any thread."""

        def begin() -> None:
            if close in self.closers:
                self.closers.discard(close)
                task = self.loop.create_task(_await(close))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

        with contextlib.suppress(RuntimeError):
            # The loop is closed, and so are all connections.
            self.loop.call_soon_threadsafe(begin)

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close_all(), self.loop).result(STOP_SECONDS)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.join()

    async def _close_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others - self._closing:
            task.cancel()
        await asyncio.gather(*others, *(_await(each) for each in self.closers), return_exceptions=True)
        self.closers.clear()


class _End:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


class _Work(Generic[T]):
    """One call in the loop."""

    def __init__(self, thread: _LoopThread, function: Callable[[], Awaitable[T]]) -> None:
        self._thread = thread
        self._function = function
        self._has_ended = threading.Event()
        self._is_stopped = False
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> Future[T]:
        """Start the call. Callers must be inside `try` already, since Ctrl-C may come at any time."""
        return asyncio.run_coroutine_threadsafe(self._run(), self._thread.loop)

    async def _run(self) -> T:
        try:
            if self._is_stopped:
                raise asyncio.CancelledError
            self._task = asyncio.current_task()
            return await self._function()
        finally:
            self._has_ended.set()

    def stop(self) -> None:
        """Cancel the call if it is running, and wait for its end."""
        if self._has_ended.is_set():
            return
        self._thread.loop.call_soon_threadsafe(self._cancel)
        # The garbage collector may close an iterator in the loop's thread, which cannot wait for itself.
        if threading.current_thread() is not self._thread:
            self._has_ended.wait(STOP_SECONDS)

    def _cancel(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()


async def _await(function: Close) -> None:
    await function()


BACKGROUND = Background()
