"""The recorder of a pod and the port that it reports to, over TLS on this machine."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from paddlejob.operator.ports.server import Limits
from paddlejob.operator.reports import certificate, intake
from paddlejob.operator.reports.certificate import Certificate
from paddlejob.operator.reports.intake import Answer, Call
from paddlejob.operator.reports.tokens import PodIdentity
from paddlejob.recorder import operator_sink
from paddlejob.recorder.operator_sink import OperatorSink
from tests.recorder.interpreter import PACKAGE
from tests.support.waiting import eventually_async

TRAINS = """
import random
from paddlejob.recorder import report
random.seed(1)
for step in range(1, 4):
    report(step, total=30, loss=float("nan"))
print(random.random())
"""


@pytest.fixture(scope="module")
def made() -> Certificate:
    return asyncio.run(certificate._make("127.0.0.1"))


@pytest.fixture(scope="module")
def other() -> Certificate:
    return asyncio.run(certificate._make("operator.example.org"))


def mount(directory: Path, trusted: Certificate) -> Path:
    """Lay the recorder out as the kubelet does."""
    place = directory / "recorder"
    shutil.copytree(PACKAGE, place, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "ca.crt").write_text(trusted.certificate)
    (place / "token").write_text("secret\n")
    return place


async def train(
    place: Path, url: str, program: str = TRAINS, *, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(place / "site"), "PADDLEJOB_REPORT_URL": url, "PADDLE_TRAINER_ID": "2"}
    command = [python, "-c", program]
    return await asyncio.to_thread(
        subprocess.run, command, env=env, cwd=place, capture_output=True, text=True, check=False
    )


class Operator:
    """Takes reports and answers as it is told."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, dict]] = []

    async def admit(self, token: str, _: str) -> PodIdentity:
        return PodIdentity("team", token, "uid-0")

    async def handle(self, call: Call) -> Answer:
        self.got.append((call.sender.name, json.loads(call.body)))
        return self.answers.pop(0) if self.answers else Answer(200, {"nextSeconds": 5.0})

    async def serve(self, identity: Certificate, act: Callable[[str], object]) -> None:
        context = identity.server_context()
        routes = {intake.REPORT_PATH: self.handle}
        async with intake.serve("127.0.0.1:0", context, self.admit, routes) as port:
            await act(f"https://127.0.0.1:{port}")


async def test_ranks_report_numbers_over_tls_and_the_last_state_at_the_end(tmp_path: Path, made):
    operator, place = Operator(), mount(tmp_path, made)

    async def act(url: str) -> None:
        done = await train(place, url)
        assert (done.returncode, done.stderr) == (0, "")

    await operator.serve(made, act)
    token, last = operator.got[-1]
    assert token == "secret"
    assert (last["rank"], last["step"], last["total"], last["loss"]) == (2, 3, 30, "nan")
    assert [report.get("ended", False) for _, report in operator.got] == [False, True]
    values = {**last, **last.pop("startup")}.values()
    assert {type(value) for value in values} <= {int, float, str, bool, dict}


def interpreters() -> list[str]:
    """Return a Python of every version that the recorder runs on, as far as this machine has them."""
    places = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"))
    found = {place.parent.parent.name.split(".")[1]: str(place) for place in places}
    return [found[minor] for minor in map(str, range(8, 14)) if minor in found] or [sys.executable]


@pytest.mark.parametrize("python", interpreters(), ids=lambda python: Path(python).parent.parent.name)
async def test_every_python_of_a_users_image_can_report(tmp_path: Path, made, python: str):
    operator, place = Operator(), mount(tmp_path, made)

    async def act(url: str) -> None:
        done = await train(place, url, python=python)
        assert (done.returncode, done.stderr) == (0, "")

    await operator.serve(made, act)
    assert operator.got[-1][1]["step"] == 3


async def test_without_an_operator_training_continues_with_the_same_results(tmp_path: Path, made, other):
    place = mount(tmp_path, made)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"https://127.0.0.1:{closed.getsockname()[1]}"
    expected = await train(place, "")
    refused, broken = await train(place, nobody), Operator(Answer(500, {}), Answer(500, {}))
    results = [expected, refused]

    async def act(url: str) -> None:
        results.append(await train(place, url))

    await broken.serve(made, act)
    assert {(done.returncode, done.stdout, done.stderr) for done in results} == {(0, expected.stdout, "")}


async def test_nothing_is_sent_to_whoever_is_not_the_operator(tmp_path: Path, made, other):
    impostor, place = Operator(), mount(tmp_path, made)

    async def act(url: str) -> None:
        assert (await train(place, url)).returncode == 0

    await impostor.serve(other, act)
    assert impostor.got == []


async def test_the_response_sets_the_time_of_the_next_report(tmp_path: Path, made):
    answers = (
        Answer(200, {"nextSeconds": 40.0}),
        Answer(429, {"nextSeconds": 20.0}),
        Answer(200, {"nextSeconds": 1e9}),
        Answer(200, {"nextSeconds": 0}),
    )
    operator, place = Operator(*answers), mount(tmp_path, made)
    pauses: list[float] = []

    async def act(url: str) -> None:
        with closing(OperatorSink(url, str(place))) as sink:
            pauses.extend([await asyncio.to_thread(sink.send, {"step": 1}) for _ in answers])

    await operator.serve(made, act)
    for pause, asked in zip(pauses, (40, 20, operator_sink.MAX_SECONDS, 1), strict=True):
        assert 0.8 * asked <= pause <= 1.2 * asked


async def test_failures_in_a_row_are_further_and_further_apart(tmp_path: Path, made):
    place = mount(tmp_path, made)
    operator = Operator(
        *(Answer(401, {"message": "no"}) for _ in range(3)), Answer(200, {"nextSeconds": 5.0})
    )
    pauses: list[float] = []

    async def act(url: str) -> None:
        with closing(OperatorSink(url, str(place))) as sink:
            pauses.extend([await asyncio.to_thread(sink.send, {"step": 1}) for _ in range(4)])

    await operator.serve(made, act)
    for pause, expected in zip(pauses, (2, 4, 8, 5), strict=True):
        assert 0.8 * expected <= pause <= 1.2 * expected


async def test_a_connection_serves_many_reports_and_is_opened_again_when_it_is_closed(tmp_path: Path, made):
    operator, place = Operator(), mount(tmp_path, made)

    async def act(url: str) -> None:
        with closing(OperatorSink(url, str(place))) as sink:
            for _ in range(2):
                await asyncio.to_thread(sink.send, {"step": 1})
            connection = sink._connection
            connection.sock.close()
            await asyncio.to_thread(sink.send, {"step": 2})
            assert sink._connection is not connection

    await operator.serve(made, act)
    assert [report["step"] for _, report in operator.got] == [1, 1, 2]


async def test_a_port_that_closes_does_not_wait_for_ranks(tmp_path: Path, made):
    gc.collect()
    place, before = mount(tmp_path, made), open_sockets()
    sinks: list[OperatorSink] = []

    async def act(url: str) -> None:
        sinks.append(OperatorSink(url, str(place)))
        await asyncio.to_thread(sinks[0].send, {"step": 1})

    await Operator().serve(made, act)
    with closing(sinks[0]):
        # Only the rank's own is left.
        await eventually_async(lambda: open_sockets() == before + 1, within_seconds=10)


def open_sockets() -> int:
    # The directory itself is in the list, and closed again.
    links = (link for link in list(Path("/proc/self/fd").iterdir()) if link.is_symlink())
    return sum(str(link.readlink()).startswith("socket:") for link in links)


async def test_a_rank_sends_its_stacks_on_request(tmp_path: Path, made):
    operator = Operator(Answer(200, {"nextSeconds": 5.0, "stacks": True}), Answer(200, {"nextSeconds": 7.0}))
    place, pauses = mount(tmp_path, made), []

    async def act(url: str) -> None:
        with closing(OperatorSink(url, str(place))) as sink:
            pauses.append(await asyncio.to_thread(sink.send, {"step": 1}))

    await operator.serve(made, act)
    (_, first), (_, second) = operator.got
    assert "stacks" not in first
    assert "operator_sink.py" in second["stacks"]
    assert "test_operator_sink.py" in second["stacks"] or "base_events.py" in second["stacks"]
    assert 0.8 * 7 <= pauses[0] <= 1.2 * 7


async def test_authenticated_connections_are_not_closed_for_others(tmp_path: Path, made, monkeypatch):
    """Of four places two may be kept; a third rank reports, too, over a connection for one report."""
    monkeypatch.setattr(intake, "LIMITS", Limits(connections=4, per_source=4))
    operator, place = Operator(), mount(tmp_path, made)

    async def act(url: str) -> None:
        with ExitStack() as stack:
            sinks = [stack.enter_context(closing(OperatorSink(url, str(place)))) for _ in range(3)]
            for sink in sinks:
                await asyncio.to_thread(sink.send, {"step": 1})
            assert [sink._connection.sock is not None for sink in sinks] == [True, True, False]

    await operator.serve(made, act)
    assert [report["step"] for _, report in operator.got] == [1, 1, 1]
