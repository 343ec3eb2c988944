"""Shows a run of another process, from what that writes to the run's directory."""

from __future__ import annotations

import time

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.core.actions import Event
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import Follower
from paddlejob.local.store.run_directory import RunDirectory, RunRecord
from paddlejob.local.ui.output import Output, Shown
from paddlejob.local.ui.show import LOOK_SECONDS, show_new_lines, show_rest


def attach(run: RunDirectory, record: RunRecord, output: Output) -> Ending | None:
    """Show a run to its end and return how it ended, None when its runner was killed."""
    shown = Shown(record.job, run, notes=record.notes, python=record.python, is_attached=True)
    output.on_start(shown)
    follower, changes = Follower(run, bars=True), _Changes(run, output)
    try:
        is_alive = True
        while is_alive:
            is_alive = run.is_alive
            record = run.read_record() or record
            changes.show(record)
            show_new_lines(follower, output)
            if is_alive:
                time.sleep(LOOK_SECONDS)
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
    """Tells what is new in a run's record and events."""

    def __init__(self, run: RunDirectory, output: Output) -> None:
        self._output = output
        self._events = run.path / "events.jsonl"
        self._offset = 0
        self._record: RunRecord | None = None
        self._pods: dict[str, Pod] = {}
        self._gone: frozenset[str] = frozenset()

    def show(self, record: RunRecord) -> None:
        """Tell the observer what has changed since the last time."""
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
