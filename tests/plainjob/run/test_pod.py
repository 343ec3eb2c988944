from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from paddlejob.plainjob.errors import PeerFailedError
from paddlejob.plainjob.rendezvous.peers import Peer, Peers
from paddlejob.plainjob.run import pod as node_module
from paddlejob.plainjob.run.console import Console
from paddlejob.plainjob.run.pod import PodRunner, Program
from paddlejob.plainjob.run.process import SignalForwarder
from paddlejob.plainjob.settings import JobSettings


class Client:
    """A client whose coordinator has said who failed first, or is silent."""

    def __init__(self, failed_first=None):
        self.failed_first = failed_first
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    async def wait_for(self, kind):
        if self.failed_first is None:
            await asyncio.Event().wait()
        raise PeerFailedError("it failed", self.failed_first)


def node(client):
    return PodRunner(
        JobSettings(job_name="job", job_path=Path("/"), train_config_dir="conf"),
        Peers((Peer("a", "10.0.0.1"), Peer("b", "10.0.0.2")), me=1),
        client,
        program=Program(command="python3 train.py"),
        directory="/",
        console=Console(io.BytesIO(), io.BytesIO()),
        signals=SignalForwarder(),
    )


async def test_a_trainer_that_fails_after_another_fails_because_of_it():
    with pytest.raises(PeerFailedError):
        await node(Client(failed_first=0))._raise_first_failure("exit code 139")


@pytest.mark.parametrize(
    "first", [pytest.param(1, id="it was itself"), pytest.param(None, id="nobody says who")]
)
async def test_a_trainer_that_fails_first_answers_for_it(first, monkeypatch):
    monkeypatch.setattr(node_module, "FIRST_FAILURE_SECONDS", 0.01)
    client = Client(first)
    await node(client)._raise_first_failure("exit code 139")
    assert [message.reason for message in client.sent] == ["exit code 139"]
