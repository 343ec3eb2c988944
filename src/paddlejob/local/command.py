"""Runs or attaches to a job in the foreground: output, control commands, Ctrl-C and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import time
from collections.abc import Iterator

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.core.actions import Event
from paddlejob.local import control
from paddlejob.local.runner import Ending
from paddlejob.local.session import Options, RunSession, prepare
from paddlejob.local.store.logs import Follower
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
from paddlejob.local.ui.output import EXIT_CODES, POLL_SECONDS, Output, show_new_lines, show_rest

MAX_OPEN_FILES = 65536
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run(options: Options, output: Output) -> int:
    """Run a job and return its exit code. Raises InputError before anything is started."""
    _raise_file_limit()
    async with prepare(options) as session:
        output.on_start(session.directory, session.record)
        session.runner.observe(output)
        with _stop_on_signals(session, output):
            async with control.serve_commands(session.runner, session.directory):
                ending = await _run_and_show(session, output)
        output.on_end(ending, session.outcome)
    return EXIT_CODES[ending]


def _raise_file_limit() -> None:
    """Raise the limit of open files if allowed: a pod needs about three, and the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        # macOS rejects limits above a kernel maximum.
        resource.setrlimit(resource.RLIMIT_NOFILE, (file_limit(soft, hard), hard))


def file_limit(soft: int, hard: int) -> int:
    """Return the soft limit of open files: never lowered, and raised to MAX_OPEN_FILES at most.

    Programs that close every possible descriptor take minutes under a limit of a billion.
    """
    if soft == resource.RLIM_INFINITY:
        return soft
    return max(soft, MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES))


async def _run_and_show(session: RunSession, output: Output) -> Ending:
    """Run the session and show its logs, including everything written before the end."""
    follower = Follower(session.directory, bars=True)
    running = asyncio.create_task(session.run())
    try:
        while not running.done():
            await asyncio.to_thread(show_new_lines, follower, output)
            await asyncio.wait((running,), timeout=POLL_SECONDS)
        await asyncio.to_thread(show_rest, follower, output)
        return await running
    finally:
        follower.close()
        if not running.done():
            running.cancel()
            await asyncio.wait((running,))


@contextlib.contextmanager
def _stop_on_signals(session: RunSession, output: Output) -> Iterator[None]:
    """Stop the run gracefully at the first signal, and kill its pods at the second.

    SIGHUP counts only as the first: the kernel and the shell both send one when a terminal closes.
    """
    loop = asyncio.get_running_loop()
    received = 0

    def stop(number: signal.Signals) -> None:
        nonlocal received
        if number == signal.SIGHUP and received:
            return
        received += 1
        if received > 2:
            # Exit even if stdout is blocked; the supervisors end the containers.
            os._exit(EXIT_CODES[Ending.INTERRUPTED])
        output.on_interrupt(received)
        session.runner.interrupt()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


def attach(run: RunDirectory, record: RunRecord, output: Output) -> Ending | None:
    """Show a run of another process until it ends. Returns None if its runner was killed."""
    output.on_start(run, record, is_attached=True)
    follower, changes = Follower(run, bars=True), _Changes(run, output)
    try:
        is_alive = True
        while is_alive:
            is_alive = run.is_alive
            record = run.read_record() or record
            changes.show(record)
            show_new_lines(follower, output)
            if is_alive:
                time.sleep(POLL_SECONDS)
        show_rest(follower, output)
    except KeyboardInterrupt:
        output.on_detach()
        raise
    finally:
        follower.close()
    if not record.result:
        output.on_detach()
        return None
    ending = Ending(record.result)
    output.on_end(ending, record.outcome)
    return ending


class _Changes:
    """Passes changes in the record and events of a run to an output."""

    def __init__(self, run: RunDirectory, output: Output) -> None:
        self._output = output
        self._events = run.path / "events.jsonl"
        self._offset = 0
        self._record: RunRecord | None = None
        self._pods: dict[str, Pod] = {}
        self._gone: frozenset[str] = frozenset()

    def show(self, record: RunRecord) -> None:
        if self._record is None or record.job != self._record.job:
            self._output.on_job(record.job)
        self._record = record
        for pod in record.pods:
            name = pod.metadata.name
            if pod != self._pods.get(name):
                self._pods[name] = pod
                self._output.on_pod(pod)
        for name in sorted(frozenset(record.gone) - self._gone):
            self._output.on_pod_gone(name)
        self._gone = frozenset(record.gone)
        self._show_events()

    def _show_events(self) -> None:
        try:
            with self._events.open("rb") as reader:
                reader.seek(self._offset)
                lines = reader.read().splitlines(keepends=True)
        except OSError:
            return
        for line in lines:
            if line.endswith(b"\n"):
                self._offset += len(line)
                self._output.on_event(msgspec.json.decode(line, type=Event))
