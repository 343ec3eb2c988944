from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from paddlejob.recipe import node as node_module
from paddlejob.recipe.console import Console
from paddlejob.recipe.errors import PeerFailedError
from paddlejob.recipe.interrupt import Interruptions
from paddlejob.recipe.node import Node, Program
from paddlejob.recipe.peers import Peer, Roster
from paddlejob.recipe.settings import Settings


class Company:
    """A session in which the hub has said who failed first, or is silent."""

    def __init__(self, failed_first=None):
        self.failed_first = failed_first
        self.said = []

    def say(self, message):
        self.said.append(message)

    async def until(self, kind):
        if self.failed_first is None:
            await asyncio.Event().wait()
        raise PeerFailedError("it failed", self.failed_first)


def node(session):
    return Node(
        Settings(job_name="job", job_path=Path("/"), train_config_dir="conf"),
        Roster((Peer("a", "10.0.0.1"), Peer("b", "10.0.0.2")), me=1),
        session,
        program=Program(command="python3 train.py"),
        directory="/",
        console=Console(io.BytesIO(), io.BytesIO()),
        interruptions=Interruptions(),
    )


async def test_a_trainer_that_fails_after_another_fails_because_of_it():
    with pytest.raises(PeerFailedError):
        await node(Company(failed_first=0))._blame_who_failed_first("exit code 139")


@pytest.mark.parametrize(
    "first", [pytest.param(1, id="it was itself"), pytest.param(None, id="nobody says who")]
)
async def test_a_trainer_that_fails_first_answers_for_it(first, monkeypatch):
    monkeypatch.setattr(node_module, "VERDICT_SECONDS", 0.01)
    session = Company(first)
    await node(session)._blame_who_failed_first("exit code 139")
    assert [message.reason for message in session.said] == ["exit code 139"]
