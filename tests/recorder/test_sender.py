from __future__ import annotations

import queue

from paddlejob.recorder.progress import Progress
from paddlejob.recorder.sender import Sender


class Sink:
    """Asks for the next report after an hour."""

    exit_seconds = 30.0

    def __init__(self) -> None:
        self.sent: queue.Queue[dict] = queue.Queue()

    def send(self, report: dict) -> float:
        self.sent.put(report)
        return 3600.0

    def close(self) -> None:
        self.sent.put({})


def test_a_rank_waiting_in_its_first_step_reports_and_the_step_follows_immediately():
    progress, sink = Progress(), Sink()
    sender = Sender(progress)
    sender._sink = sink
    progress.enter()
    sender.wake()
    first = sink.sent.get(timeout=60)
    assert (first["step"], first["phase"], first["waiting"]) == (0, "starting", True)
    progress.leave(steps=1)
    sender.wake()
    second = sink.sent.get(timeout=60)
    assert (second["step"], second["phase"], second.get("waiting")) == (1, "training", None)
    progress.enter()
    progress.leave(steps=1)
    sender.wake()
    assert sink.sent.empty()
    sender._finish()
    last = sink.sent.get(timeout=60)
    assert (last["step"], last["ended"]) == (2, True)
    assert sink.sent.get(timeout=60) == {}
