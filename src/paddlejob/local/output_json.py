"""One JSON object a line, for machines."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import BinaryIO

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Event
from paddlejob.local.board import Board
from paddlejob.local.logs import Lines, chosen_pods
from paddlejob.local.output import EXIT_CODES
from paddlejob.local.session import Session
from paddlejob.local.stream import Stream
from paddlejob.local.world import Ending


class JsonOutput:
    """Prints run, note, job, pod, event, log and result objects; each has a `type` and a `time`."""

    def __init__(self, logs: str, stream: BinaryIO | Stream | None = None) -> None:
        self._logs = logs
        self.may_skip = logs == "none"
        self._stream = stream or Stream(sys.stdout.buffer)
        self._board: Board | None = None
        self._session: Session | None = None
        self._job_said: tuple[str, str, str] | None = None

    def began(self, session: Session) -> None:
        """Tell the run's name and directory."""
        self._session = session
        self._board = Board(session.world.job)
        run = session.run_directory
        self._print("run", run=run.name, directory=str(run.path), job=session.world.job.name)
        for note in session.notes:
            self._print("note", message=note)

    def job_changed(self, job: PaddleJob) -> None:
        """Tell a new phase, reason or message."""
        assert self._board is not None
        self._board.job_changed(job)
        said = (str(job.status.phase), job.status.reason, job.status.message)
        if said != self._job_said and job.status.phase:
            self._job_said = said
            phase, reason, message = said
            self._print("job", job=job.name, phase=phase, reason=reason, message=message)

    def pod_changed(self, pod: Pod) -> None:
        """Tell a new state of a pod."""
        assert self._board is not None
        state = self._board.pod_changed(pod)
        if not state:
            return
        ended = next((each.state.terminated for each in pod.status.container_statuses), None)
        ending = {"exitCode": ended.exit_code, "reason": ended.reason} if ended else {}
        restarts = sum(each.restart_count for each in pod.status.container_statuses)
        self._print(
            "pod",
            pod=pod.metadata.name,
            phase=pod.status.phase,
            state=state,
            address=pod.status.pod_ip,
            restarts=restarts,
            **ending,
        )

    def pod_gone(self, name: str) -> None:
        """Tell that a pod is no more."""
        assert self._board is not None
        self._board.pod_gone(name)
        self._print("pod", pod=name, state="Gone")

    def told(self, event: Event) -> None:
        """Tell an event."""
        self._print("event", level=str(event.type), reason=event.reason, message=event.message)

    def said(self, lines: Lines) -> None:
        """Tell a pod's lines, where they are asked for."""
        assert self._board is not None
        self._board.heard(lines)
        if not chosen_pods(self._board.job.name, self._logs, (lines.pod,)):
            return
        for line in lines.text.decode(errors="replace").split("\n")[:-1]:
            self._print("log", pod=lines.pod, container=lines.container, line=line)

    def tick(self) -> None:
        """Nothing moves here."""

    def interrupted(self, times: int) -> None:
        """Tell that the run is to end."""
        self._print("interrupted", times=times)

    def ended(self, ending: Ending) -> None:
        """Tell the result."""
        assert self._board is not None
        assert self._session is not None
        job = self._board.job
        self._print(
            "result",
            job=job.name,
            result=str(ending),
            exitCode=EXIT_CODES[ending],
            reason=job.status.reason,
            message=job.status.message,
            seconds=round(self._board.seconds, 3),
            directory=str(self._session.run_directory.path),
        )

    def _print(self, kind: str, **fields: object) -> None:
        line = {"type": kind, "time": datetime.now(UTC), **fields}
        self._stream.write(msgspec.json.encode(line) + b"\n")
        self._stream.flush()
