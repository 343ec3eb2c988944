"""Plain lines, for pipes, files and terminals without a cursor: the pods' words on stdout, ours on stderr."""

from __future__ import annotations

import re
import sys
from typing import BinaryIO, TextIO

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.local.local_run import LocalRun
from paddlejob.local.runner import Ending
from paddlejob.local.store.logs import LogLines, Prefixes, chosen_pods, short_name
from paddlejob.local.ui import summary
from paddlejob.local.ui.stream import Stream
from paddlejob.local.ui.view import RunView

_NUMBERS = re.compile(r"[0-9]+")


class PlainOutput:
    """Prints what happens, in order."""

    def __init__(
        self,
        logs: str,
        *,
        words: BinaryIO | Stream | None = None,
        news: TextIO | Stream | None = None,
        colours: bool = False,
    ) -> None:
        self._logs = logs
        self.may_skip = logs == "none"
        self._words = words or Stream(sys.stdout.buffer)
        self._news = news or Stream(sys.stderr)
        self._colours = colours
        self._view: RunView | None = None
        self._local_run: LocalRun | None = None
        self._prefixes = Prefixes(colours=colours)
        self._last_gist = ""

    def on_start(self, local_run: LocalRun) -> None:
        """Print the name of the run and its directory."""
        job = local_run.runner.job
        self._local_run = local_run
        self._view = RunView(job)
        for note in local_run.notes:
            self._say(f"note: {note}")
        self._say(f"{job.name}: run {local_run.run_directory.name} in {local_run.run_directory.path}")

    def on_job(self, job: PaddleJob) -> None:
        """Say where the job is, when that is news."""
        assert self._view is not None
        self._view.on_job(job)
        # That a count has gone from 31 to 30 is not worth a line, and a failure is the last line of all.
        gist = _NUMBERS.sub("#", job.status.message) or str(job.status.phase)
        if job.status.phase not in (Phase.NONE, Phase.FAILED) and gist != self._last_gist:
            self._last_gist = gist
            self._say(f"{job.name}: {job.status.phase}: {job.status.message}")

    def on_pod(self, pod: Pod) -> None:
        """Say how a pod is, when that is news."""
        assert self._view is not None
        state = self._view.on_pod(pod)
        if state and state not in ("Pending", "ContainerCreating", "PodInitializing"):
            self._say_state(pod.metadata.name, state)

    def on_pod_gone(self, name: str) -> None:
        """Say that a pod was stopped."""
        assert self._view is not None
        if state := self._view.on_pod_gone(name):
            self._say_state(name, state)

    def on_event(self, event: Event) -> None:
        """Pass warnings on; the rest shows in the phases."""
        if event.type is EventType.WARNING and event.reason != Phase.FAILED:
            self._say(f"{event.reason}: {event.message}")

    def on_log(self, lines: LogLines) -> None:
        """Print a pod's lines."""
        assert self._view is not None
        self._view.on_log(lines)
        if lines.text and chosen_pods(self._view.job.name, self._logs, (lines.pod,)):
            self._words.write(self._prefixes.apply(lines.text, self._view.speaker(lines)))
            self._words.flush()

    def tick(self) -> None:
        """Nothing moves here."""

    def on_interrupt(self, times: int) -> None:
        """Say what is done about it."""
        self._say(summary.interruption(times))

    def on_end(self, ending: Ending) -> None:
        """Say how it went."""
        assert self._view is not None
        assert self._local_run is not None
        for line in summary.lines(self._view, ending, self._local_run, shown=self._logs):
            self._say(line)

    def _say_state(self, pod: str, state: str) -> None:
        assert self._view is not None
        job = self._view.job.name
        self._say(f"{job}: {short_name(job, pod)} {state}")

    def _say(self, line: str) -> None:
        self._news.write(f"{line}\n")
        self._news.flush()
