"""An asyncio event loop under virtual time: hours pass in milliseconds, and a seed decides every order.

The clock stands still while anything can run and jumps to the next timer when nothing can. Callbacks that
are ready at the same moment run in an order drawn from the seed: a thousand seeds are a thousand schedules,
and one seed is always the same one. There is no selector underneath: no socket, no thread, no real wait.

One thing is beyond its reach: Python's hash randomisation. Code that iterates over a set of strings gives
the same order within one process only; give PYTHONHASHSEED to repeat a run in another process.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

_ASYNCIO_DIRECTORY = str(Path(asyncio.__file__).parent)

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
"""The value of `now()` when a virtual loop starts."""


class SimulationError(Exception):
    """A run that cannot continue; the message lists the tasks and the line at which each waits."""


class DeadlockError(SimulationError):
    """Nothing is ready and no timer is set: every task waits for another."""


class TimeLimitError(SimulationError):
    """Limit of virtual time exceeded."""


class StepLimitError(SimulationError):
    """Step limit exceeded, most likely a busy loop."""


class TraceEntry(NamedTuple):
    """One callback that ran."""

    seconds: float
    what: str


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop of `run`."""

    _ready: deque[asyncio.Handle]

    def __init__(
        self,
        *,
        seed: int | str = 0,
        max_virtual_seconds: float = 7 * 86400.0,
        max_steps: int = 10_000_000,
        trace: list[TraceEntry] | None = None,
    ) -> None:
        super().__init__()
        self.steps = 0
        self.failures: list[BaseException] = []
        """Errors of callbacks and forgotten tasks; `run` raises them."""
        self._rng = random.Random(seed)
        self._seconds = 0.0
        self._max_virtual_seconds = max_virtual_seconds
        self._max_steps = max_steps
        self._trace = trace
        self._tasks_made = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap. The numbers keep it from comparing handles, which is slow."""
        self._timer_numbers = itertools.count()
        self._timers_cancelled = 0
        self.set_exception_handler(_remember_failure)

    def time(self) -> float:
        """Return the virtual seconds since the loop began."""
        return self._seconds

    def now(self) -> datetime:
        """Return the virtual date."""
        return EPOCH + timedelta(seconds=self._seconds)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        """Create a task with a default name and a hash that depend only on the order of creation."""
        self._tasks_made += 1
        if options.get("name") is None:
            options["name"] = f"task-{self._tasks_made}"
        return _NumberedTask(coro, loop=self, number=self._tasks_made, **options)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]  # noqa: ARG002
        """Refuse: a thread would bring real time and real order in."""
        raise RuntimeError(f"{func!r} would run in a thread, which a virtual loop cannot repeat")

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that have not ended, oldest first."""
        return sorted((task for task in asyncio.all_tasks(self) if not task.done()), key=hash)

    def cancel_everything(self, *, max_rounds: int = 20) -> None:
        """Cancel all tasks and run until they have ended.

        Raises SimulationError when a task will not end.
        """
        self._max_steps = self.steps + 1_000_000
        self._max_virtual_seconds = self._seconds + 86400.0
        for _ in range(max_rounds):
            tasks = self.pending_tasks()
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks, timeout=3600))
        raise SimulationError(self._message("these tasks do not end when they are cancelled"))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call back at a virtual time."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001  (that its cancellation is told)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def _run_once(self) -> None:
        if not self._ready:
            self._jump()
        timers = self._timers
        while timers and timers[0][0] <= self._seconds:
            self._ready.append(heapq.heappop(timers)[2])
        batch = list(self._ready)
        self._ready.clear()
        if len(batch) > 1:
            self._rng.shuffle(batch)
        try:
            while batch:
                handle = batch.pop()
                if not handle.cancelled():
                    self._count_step(handle)
                    handle._run()  # noqa: SLF001  (what BaseEventLoop calls, too)
        except BaseException:
            # The run is over, yet every task must still get its turn to be cancelled.
            self._ready.extend(batch)
            raise

    def _jump(self) -> None:
        """Move the clock to the next timer."""
        self._drop_cancelled_timers()
        if not self._timers:
            raise DeadlockError(self._message("nothing is ready and no timer is set"))
        # The clock always advances: the rest of a wait may be too small for a float to add.
        upcoming = max(self._timers[0][0], math.nextafter(self._seconds, math.inf))
        if upcoming > self._max_virtual_seconds:
            raise TimeLimitError(self._message(f"more than {self._max_virtual_seconds:g} virtual seconds"))
        self._seconds = upcoming

    def _drop_cancelled_timers(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if self._timers_cancelled > 100 and self._timers_cancelled > len(self._timers) // 2:
            self._timers[:] = [each for each in self._timers if not each[2].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def _count_step(self, handle: asyncio.Handle) -> None:
        self.steps += 1
        if self._trace is not None:
            self._trace.append(TraceEntry(self._seconds, _label(handle)))
        if self.steps > self._max_steps:
            self._ready.append(handle)
            raise StepLimitError(self._message(f"more than {self._max_steps} steps"))

    def _message(self, problem: str) -> str:
        lines = [f"{problem}, at {self._seconds:g} virtual seconds after {self.steps} steps; tasks:"]
        lines += [f"  {task.get_name()}: {_where(task)}" for task in self.pending_tasks()]
        return "\n".join(lines)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:  # noqa: ARG002  (asyncio's hook)
        self._timers_cancelled += 1

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there is no selector and so there are no events."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake."""


def run(
    main: Coroutine[Any, Any, T],
    *,
    seed: int | str = 0,
    max_virtual_seconds: float = 7 * 86400.0,
    max_steps: int = 10_000_000,
    trace: list[TraceEntry] | None = None,
) -> T:
    """Run a coroutine to its end under virtual time and return its result.

    One seed gives one schedule. No task is left: tasks that still run when `main` ends are cancelled.
    `trace` collects every step.
    Raises the error of `main`; DeadlockError, TimeLimitError or StepLimitError if it does not end; an
    ExceptionGroup with the errors of callbacks and forgotten tasks.
    """
    if asyncio._get_running_loop() is not None:  # noqa: SLF001  (the only way to ask without an exception)
        main.close()
        raise RuntimeError("a virtual loop cannot run inside another loop: call `run` from a plain function")
    loop = VirtualLoop(seed=seed, max_virtual_seconds=max_virtual_seconds, max_steps=max_steps, trace=trace)
    # A collection that finds a forgotten generator schedules its end, at a moment that no seed decides.
    collects = gc.isenabled()
    gc.disable()
    try:
        try:
            result: T = loop.run_until_complete(loop.create_task(main, name="main"))
        finally:
            loop.cancel_everything()
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
        if collects:
            gc.enable()
    if loop.failures:
        raise BaseExceptionGroup("errors that no task waited for", loop.failures)
    return result


def now() -> datetime:
    """Return the virtual date on a virtual loop, the real one on any other."""
    loop = asyncio.get_running_loop()
    return loop.now() if isinstance(loop, VirtualLoop) else datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Return a point in time as Kubernetes objects carry it: in UTC, to the second."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


class _NumberedTask(asyncio.Task[Any]):
    """A task that sorts and hashes by its number, so that sets of tasks have one order."""

    def __init__(self, coro: Any, *, loop: VirtualLoop, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


def _remember_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    failure = context.get("exception") or RuntimeError(context["message"])
    loop.failures.append(failure)


def _label(handle: asyncio.Handle) -> str:
    callback: Callable[..., Any] = handle._callback  # type: ignore[attr-defined]  # noqa: SLF001
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(owner.get_name())
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _where(task: asyncio.Task[Any]) -> str:
    """Return the innermost line outside asyncio at which a task waits."""
    awaited: Any = task.get_coro()
    place = str(getattr(awaited, "__qualname__", awaited))
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(_ASYNCIO_DIRECTORY):
            place = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return place
