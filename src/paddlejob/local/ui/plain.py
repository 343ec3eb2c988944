"""Plain lines, for pipes, files and dumb terminals: the output of pods on stdout, our own on stderr."""

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
from paddlejob.local.store.logs import LogLines, Prefixes, chosen_pods, short_name, widest_label
from paddlejob.local.store.run_directory import Outcome
from paddlejob.local.ui import summary
from paddlejob.local.ui.output import Shown
from paddlejob.local.ui.stream import Stream
from paddlejob.local.ui.view import RunView

SLOW_SECONDS = 2.0
"""A job that has not started after this long says what it waits for."""
_NUMBERS = re.compile(r"[0-9]+")
_NO_NEWS = ("Pending", "ContainerCreating", "PodInitializing", "Terminating")
"""States that another follows in a moment."""


class PlainOutput:
    """Prints what happens, in order: how a pod ended stands below its last line."""

    def __init__(
        self, logs: str, *, output: BinaryIO | Stream | None = None, messages: TextIO | Stream | None = None
    ) -> None:
        self._logs = logs
        self.may_skip = logs == "none"
        self._output = output or Stream(sys.stdout.buffer)
        self._messages = Messages(messages or Stream(sys.stderr))
        self._view: RunView | None = None
        self._shown: Shown | None = None
        self._prefixes = Prefixes(colours=False)
        self._last_gist = ""
        self._slow: tuple[float, str] | None = None

    def on_start(self, shown: Shown) -> None:
        """Print the name of the run and its directory."""
        self._shown = shown
        self._view = RunView(shown)
        self._prefixes = Prefixes(widest_label(shown.job, self._logs), colours=False)
        for note in shown.notes:
            self._messages.say(f"note: {note}")
        self._messages.say(f"{shown.job.name}: run {shown.directory.name} in {shown.directory.path}")

    def on_job(self, job: PaddleJob) -> None:
        """Say where the job is, when that is news; its end is the last line of all."""
        assert self._view is not None
        self._view.on_job(job)
        phase, message = job.status.phase, self._view.message
        # That a count has gone from 31 to 30 is not worth a line, and which workers are done is told by name.
        gist = f"{phase} {job.status.reason if phase is Phase.RUNNING else _NUMBERS.sub('#', message)}"
        if not phase or phase.is_terminal or gist == self._last_gist:
            return
        self._last_gist, self._slow = gist, None
        line = f"{job.name}: {phase}: {message}"
        if phase in (Phase.PENDING, Phase.STARTING):
            self._slow = (time.monotonic() + SLOW_SECONDS, line)
        else:
            self._messages.say(line)

    def on_pod(self, pod: Pod) -> None:
        """Say how a pod is, when the job's own lines do not."""
        assert self._view is not None
        state = self._view.on_pod(pod)
        is_first_start = state == "Running" and not any(
            each.restart_count for each in pod.status.container_statuses
        )
        if state and state not in _NO_NEWS and not is_first_start:
            self._say_state(pod.metadata.name, state)

    def on_pod_gone(self, name: str) -> None:
        """Say that a pod was stopped."""
        assert self._view is not None
        if state := self._view.on_pod_gone(name):
            self._say_state(name, state)

    def on_event(self, event: Event) -> None:
        """Pass warnings on; the rest shows in the phases."""
        if event.type is EventType.WARNING and event.reason != Phase.FAILED:
            self._messages.say(f"{event.reason}: {event.message}")

    def on_log(self, lines: LogLines) -> None:
        """Print a pod's lines."""
        assert self._view is not None
        self._view.on_log(lines)
        if lines.text and chosen_pods(self._view.job.name, self._logs, (lines.pod,)):
            self._output.write(self._prefixes.apply(lines.text, self._view.speaker(lines)))
            self._output.flush()

    def tick(self) -> None:
        """Say what had to wait for its lines, or what a job waits for that does not start."""
        self._messages.release()
        if self._slow and time.monotonic() > self._slow[0]:
            self._messages.say(self._slow[1])
            self._slow = None

    def on_interrupt(self, times: int) -> None:
        """Say what is done about it."""
        self._messages.say(summary.interruption(times))

    def on_detach(self) -> None:
        """Say that this is not the end."""
        self._messages.release_all()
        self._messages.say("detached")

    def on_end(self, ending: Ending, outcome: Outcome) -> None:
        """Say how it went."""
        assert self._view is not None
        assert self._shown is not None
        self._messages.release_all()
        for line in summary.details(self._view, ending, outcome, self._shown, selection=self._logs):
            self._messages.say(line)
        self._messages.say(summary.verdict(self._view, ending, outcome))
        if ending is not Ending.COMPLETED and self._logs != "all":
            self._messages.say(f"see `paddlejob logs {self._shown.directory.name}`")

    def _say_state(self, pod: str, state: str) -> None:
        assert self._view is not None
        job = self._view.job
        if state != "Completed" or sum(spec.replicas for _, spec in job.spec.roles()) > 1:
            self._messages.hold(f"{job.name}: {short_name(job.name, pod)} {state}")


class Messages:
    """Our own lines. One that is held waits until the logs have been read, and later ones wait behind it."""

    def __init__(self, stream: TextIO | Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._held: list[str] = []
        self._due: list[str] = []

    def say(self, line: str) -> None:
        """Print a line, or let it wait behind others."""
        with self._lock:
            if self._held or self._due:
                self._held.append(line)
            else:
                self._print([line])

    def hold(self, line: str) -> None:
        """Print a line after all that the pods have written by now."""
        with self._lock:
            self._held.append(line)

    def release(self) -> None:
        """Logs have been read once more: print what was held when that began, at the latest."""
        with self._lock:
            self._print(self._due)
            self._due, self._held = self._held, []

    def release_all(self) -> None:
        """Nothing is left to be read: print everything."""
        self.release()
        self.release()

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self._stream.write(f"{line}\n")
        if lines:
            self._stream.flush()
