"""Plain lines, for pipes, files and terminals without a cursor: the pods' words on stdout, ours on stderr."""

from __future__ import annotations

import re
import sys
from typing import BinaryIO, TextIO

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.local import summary
from paddlejob.local.board import Board
from paddlejob.local.logs import Lines, Prefixes, chosen_pods, short_name
from paddlejob.local.session import Session
from paddlejob.local.stream import Stream
from paddlejob.local.world import Ending

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
        self._board: Board | None = None
        self._session: Session | None = None
        self._prefixes = Prefixes(colours=colours)
        self._told = ""

    def began(self, session: Session) -> None:
        """Say what runs and where its traces are."""
        job = session.world.job
        self._session = session
        self._board = Board(job)
        for note in session.notes:
            self._say(f"note: {note}")
        self._say(f"{job.name}: run {session.run_directory.name} in {session.run_directory.path}")

    def job_changed(self, job: PaddleJob) -> None:
        """Say where the job is, when that is news."""
        assert self._board is not None
        self._board.job_changed(job)
        news = f"{job.status.phase}: {job.status.message}"
        # That a count has gone from 31 to 30 is no news.
        gist = _NUMBERS.sub("#", news)
        if job.status.phase and gist != self._told:
            self._told = gist
            self._say(f"{job.name}: {news}")

    def pod_changed(self, pod: Pod) -> None:
        """Say how a pod is, when that is news."""
        assert self._board is not None
        state = self._board.pod_changed(pod)
        if state and state not in ("Pending", "ContainerCreating", "PodInitializing"):
            self._say_state(pod.metadata.name, state)

    def pod_gone(self, name: str) -> None:
        """Say that a pod was stopped."""
        assert self._board is not None
        if state := self._board.pod_gone(name):
            self._say_state(name, state)

    def told(self, event: Event) -> None:
        """Pass warnings on; the rest shows in the phases."""
        if event.type is EventType.WARNING and event.reason != Phase.FAILED:
            self._say(f"{event.reason}: {event.message}")

    def said(self, lines: Lines) -> None:
        """Print a pod's lines."""
        assert self._board is not None
        self._board.heard(lines)
        if lines.text and chosen_pods(self._board.job.name, self._logs, (lines.pod,)):
            self._words.write(self._prefixes.apply(lines.text, self._board.speaker(lines)))
            self._words.flush()

    def tick(self) -> None:
        """Nothing moves here."""

    def interrupted(self, times: int) -> None:
        """Say what is done about it."""
        self._say(summary.interruption(times))

    def ended(self, ending: Ending) -> None:
        """Say how it went."""
        assert self._board is not None
        assert self._session is not None
        with_log = self._logs == "none"
        for line in summary.lines(self._board, ending, self._session.run_directory, with_log=with_log):
            self._say(line)

    def _say_state(self, pod: str, state: str) -> None:
        assert self._board is not None
        job = self._board.job.name
        self._say(f"{job}: {short_name(job, pod)} {state}")

    def _say(self, line: str) -> None:
        self._news.write(f"{line}\n")
        self._news.flush()
