"""Plain lines for pipes, files and dumb terminals: pod output on stdout, our own messages on stderr."""

from __future__ import annotations

import re
import sys
import threading
import time
from typing import BinaryIO, TextIO

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import LogLines, short_name, widest_label
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord
from paddlejob.local.ui import output
from paddlejob.local.ui.output import Output, Stream
from paddlejob.text import Prefixes

SLOW_SECONDS = 2.0
"""A job that has not started after this long prints what it is waiting for."""
_NUMBERS = re.compile(r"[0-9]+")
_TRANSIENT_STATES = ("Pending", "ContainerCreating", "PodInitializing", "Terminating")


class PlainOutput(Output):
    """Prints changes in order: the line about a pod's end comes after the pod's last line."""

    def __init__(
        self, logs: str, *, output: BinaryIO | Stream | None = None, messages: TextIO | Stream | None = None
    ) -> None:
        super().__init__(logs, may_skip=logs == "none")
        self._output = output or Stream(sys.stdout.buffer)
        self._messages = Messages(messages or Stream(sys.stderr))
        self._prefixes = Prefixes(colours=False)
        self._last_status = ""
        self._slow: tuple[float, str] | None = None

    def on_start(self, run: RunDirectory, record: RunRecord, *, is_attached: bool = False) -> None:
        super().on_start(run, record, is_attached=is_attached)
        self._prefixes = Prefixes(widest_label(record.job, self.logs), colours=False)
        for note in record.notes:
            self._messages.print(f"note: {note}")
        self._messages.print(f"{record.job.name}: run {run.name} in {run.path}")

    def on_job(self, job: PaddleJob) -> None:
        self.view.on_job(job)
        phase, message = job.status.phase, self.view.message
        # Changed counts are not worth a line, and pods that end are printed by name.
        status = f"{phase} {job.status.reason if phase is Phase.RUNNING else _NUMBERS.sub('#', message)}"
        if not phase or phase.is_terminal or status == self._last_status:
            return
        self._last_status, self._slow = status, None
        line = f"{job.name}: {phase}: {message}"
        if phase in (Phase.PENDING, Phase.STARTING):
            self._slow = (time.monotonic() + SLOW_SECONDS, line)
        else:
            self._messages.print(line)

    def on_pod(self, pod: Pod) -> None:
        state = self.view.on_pod(pod)
        restarts = sum(each.restart_count for each in pod.status.container_statuses)
        is_first_start = state == "Running" and not restarts
        if state and state not in _TRANSIENT_STATES and not is_first_start:
            self._print_state(pod.metadata.name, state)

    def on_pod_gone(self, name: str) -> None:
        if state := self.view.on_pod_gone(name):
            self._print_state(name, state)

    def on_event(self, event: Event) -> None:
        if event.type is EventType.WARNING and event.reason != Phase.FAILED:
            self._messages.print(f"{event.reason}: {event.message}")

    def on_log(self, lines: LogLines) -> None:
        self.view.on_log(lines)
        if lines.text and self.is_selected(lines):
            self._output.write(self._prefixes.apply(lines.text, self.view.label(lines)))
            self._output.flush()

    def tick(self) -> None:
        self._messages.release()
        if self._slow and time.monotonic() > self._slow[0]:
            self._messages.print(self._slow[1])
            self._slow = None

    def on_interrupt(self, times: int) -> None:
        self._messages.print(output.interruption(times))

    def on_detach(self) -> None:
        self._messages.release_all()
        self._messages.print("detached")

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        self._messages.release_all()
        for line in output.details(self.view, ending, outcome, selection=self.logs):
            self._messages.print(line)
        self._messages.print(output.verdict(self.view, ending, outcome))
        if ending is not Ending.COMPLETED and self.logs != "all":
            run = self.view.run
            self._messages.print(f"see `paddlejob logs {run.name}{run.run_dir_flag}`")

    def _print_state(self, pod: str, state: str) -> None:
        job = self.view.job
        if state != "Completed" or sum(spec.replicas for _, spec in job.spec.roles()) > 1:
            self._messages.hold(f"{job.name}: {short_name(job.name, pod)} {state}")


class Messages:
    """Our own lines. A held line waits until the logs have been read; later lines wait behind it."""

    def __init__(self, stream: TextIO | Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._held: list[str] = []
        self._due: list[str] = []

    def print(self, line: str) -> None:
        """Print a line, after the lines that are held."""
        with self._lock:
            if self._held or self._due:
                self._held.append(line)
            else:
                self._write([line])

    def hold(self, line: str) -> None:
        """Print a line after everything that the pods have written so far."""
        with self._lock:
            self._held.append(line)

    def release(self) -> None:
        """The logs have been read once more: print the lines held before that read began."""
        with self._lock:
            self._write(self._due)
            self._due, self._held = self._held, []

    def release_all(self) -> None:
        """The logs have been read completely: print all held lines."""
        self.release()
        self.release()

    def _write(self, lines: list[str]) -> None:
        for line in lines:
            self._stream.write(f"{line}\n")
        if lines:
            self._stream.flush()
