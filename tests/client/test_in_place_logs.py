"""The log of a container in which several programs ran one after the other."""

from __future__ import annotations

import asyncio

import pytest

from paddlejob.api import names
from paddlejob.client.cluster import Cluster
from paddlejob.client.explain import explain_job
from paddlejob.client.logs.model import LogQuery, by_attempt
from paddlejob.client.records import recorded_log
from paddlejob.history.record import AttemptRecord, RankEnd, Record, Summary, manifest
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from simkube.apiserver.server import ApiServer
from tests.client.explain import reading
from tests.client.explain.test_gather import JOBS, add_pod, cluster
from tests.client.scene import texts
from tests.support.simulated import simulated

STAMP = b"2026-01-01T00:00:00.5Z "
BORDER = STAMP + b"paddlejob: attempt %d starts in place\n"
SPLITS = {
    "no border": (b"%sa\n%sb\n" % (STAMP, STAMP), [(2, b"%sa\n%sb\n" % (STAMP, STAMP))]),
    "a border": (
        STAMP + b"a\n" + BORDER % 3 + STAMP + b"b\n",
        [(2, STAMP + b"a\n"), (3, BORDER % 3 + STAMP + b"b\n")],
    ),
    "a border first": (BORDER % 4, [(4, BORDER % 4)]),
    "two borders": (BORDER % 3 + BORDER % 5, [(3, BORDER % 3), (5, BORDER % 5)]),
    "an earlier attempt": (BORDER % 1, [(2, BORDER % 1)]),
    "the words within a line": (STAMP + b"> " + (BORDER % 3)[len(STAMP) :], None),
}


@pytest.mark.parametrize(("block", "parts"), SPLITS.values(), ids=SPLITS)
def test_lines_by_attempt(block, parts):
    assert list(by_attempt(block, 2)) == (parts or [(2, block)])


FAILURE = {"attempt": 0, "pod": "demo-worker-0", "exitCode": 137, "message": "worker-0 exited with code 137"}


def restarted(workers: int = 2, **status: object) -> ApiServer:
    """Return a cluster with a job that was restarted in place twice."""
    server = cluster(phase="Running", attempt=2, processAttempt=2, lastFailure=FAILURE, **status)
    for index in range(workers):
        name = f"demo-worker-{index}"
        add_pod(server, name, status={"phase": "Running", "containerStatuses": [reading.RUNNING]})
        mark = {"metadata": {"annotations": {names.ANNOTATION_SUPERVISED: "hash"}}}
        server.patch(PODS, "default", name, mark)
        for attempt in range(3):
            border = (f"paddlejob: attempt {attempt} starts in place",) if attempt else ()
            write(server, name, *border, f"life {attempt}", f"end {attempt}")
    return server


def write(server: ApiServer, name: str, *lines: str) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    server.container_logs.write(server.get(PODS, "default", name), text)


PREVIOUS = ["paddlejob: attempt 1 starts in place", "life 1", "end 1"]


@simulated
async def test_previous_shows_the_program_before_the_last_one():
    demo = await Cluster(reading.client(restarted()), "default").get("demo")
    for rank in ("0", "1"):
        query = LogQuery(rank=rank, previous=True)
        assert await texts(demo, query) == [f"worker-{rank}: {line}" for line in PREVIOUS]
    assert await texts(demo, LogQuery(rank="0", previous=True, tail=1)) == ["worker-0: end 1"]
    found = [line.attempt async for block in demo.logs(LogQuery(rank="0")) for line in block.lines()]
    assert found == [0, 0, 1, 1, 1, 2, 2, 2]


@simulated
async def test_a_container_that_was_itself_restarted_has_its_own_previous_log():
    server = restarted(workers=1)
    again = {**reading.RUNNING, "restartCount": 1, "lastState": {"terminated": {"exitCode": 1}}}
    status = {"phase": "Running", "containerStatuses": [again]}
    server.patch(PODS, "default", "demo-worker-0", {"status": status}, subresource="status")
    write(server, "demo-worker-0", "another container")
    demo = await Cluster(reading.client(server), "default").get("demo")
    assert (await texts(demo, LogQuery(rank="0", previous=True)))[:2] == [
        "worker-0: life 0",
        "worker-0: end 0",
    ]


@simulated
async def test_a_pod_that_is_new_in_the_attempt_has_no_previous_log():
    server = restarted(workers=1)
    server.patch(JOBS, "default", "demo", {"status": {"processAttempt": 0}}, subresource="status")
    demo = await Cluster(reading.client(server), "default").get("demo")
    assert await texts(demo, LogQuery(rank="0", previous=True)) == []


@simulated
async def test_following_marks_the_attempt_once_with_its_cause():
    server = restarted(workers=1)
    demo = await Cluster(reading.client(server), "default").get("demo")
    following = asyncio.create_task(texts(demo, LogQuery(rank="0", follow=True)))
    await asyncio.sleep(5)
    status = {
        "attempt": 3,
        "processAttempt": 3,
        "phase": "Restarting",
        "lastFailure": {**FAILURE, "attempt": 2},
    }
    server.patch(JOBS, "default", "demo", {"status": status}, subresource="status")
    await asyncio.sleep(5)
    write(server, "demo-worker-0", "paddlejob: attempt 3 starts in place", "life 3")
    await asyncio.sleep(5)
    server.patch(JOBS, "default", "demo", {"status": {"phase": "Completed"}}, subresource="status")
    found = await following
    marks = [line for line in found if line.startswith("--- attempt")]
    assert marks == ["--- attempt 3: restarted after worker-0 exited with code 137"]
    assert found.index(marks[0]) < found.index("worker-0: life 3")
    assert found.count("worker-0: life 0") == 1


def record(server: ApiServer, text: str) -> None:
    uid = server.get(JOBS, "default", "demo")["metadata"]["uid"]
    ended = AttemptRecord(0, "Restarting", ranks=(RankEnd("worker-0", text=text, from_log=True),))
    server.create(CONFIG_MAPS, manifest(Record(Summary("demo", "default", uid), attempts=(ended,))))


@pytest.mark.parametrize(("attempt", "lines"), [(0, ["life 0", "end 0"]), (1, PREVIOUS)])
@simulated
async def test_the_first_error_is_that_of_the_program_that_failed(attempt, lines):
    server = restarted()
    failure = {"status": {"lastFailure": {**FAILURE, "attempt": attempt}}}
    server.patch(JOBS, "default", "demo", failure, subresource="status")
    first = await (await Cluster(reading.client(server), "default").get("demo")).first_error()
    assert list(first.lines) == lines


@simulated
async def test_explain_shows_the_end_of_the_last_program():
    server = restarted(workers=1)
    failed = {"phase": "Failed", "reason": "PodFailed", "lastFailure": {**FAILURE, "attempt": 2}}
    server.patch(JOBS, "default", "demo", {"status": failed}, subresource="status")
    ended = {"name": "paddle", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
    status = {"phase": "Failed", "containerStatuses": [ended]}
    server.patch(PODS, "default", "demo-worker-0", {"status": status}, subresource="status")
    assert (await explain_job(reading.client(server), "default", "demo")).log[-1] == "end 2"


NOTES = {
    "boom": "pod demo-worker-0 was restarted in place; its last lines are from the operator's record",
    "": "kubectl pdj logs demo --previous shows the last lines of demo-worker-0",
}


@pytest.mark.parametrize(("text", "note"), NOTES.items())
@simulated
async def test_explain_reads_the_end_of_an_earlier_program_from_the_record(text, note):
    server = restarted(workers=1)
    record(server, text)
    client = reading.client(server)
    demo = await Cluster(client, "default").get("demo")
    found = await recorded_log(client, demo.state, demo.state.status.last_failure)
    assert found == (tuple(text.splitlines()), note)
