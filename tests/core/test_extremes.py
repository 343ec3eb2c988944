"""Values at the edge of what an API server stores: a sane status, and no more time than they are worth."""

from __future__ import annotations

import time
from datetime import timedelta

import msgspec
import pytest

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.core.actions import DeleteJob
from paddlejob.core.explain import termination_message
from paddlejob.core.network import choose_base_port
from paddlejob.core.plan import plan
from paddlejob.text import MESSAGE_LENGTH, one_line
from simkube.build import NOW, job, snapshot

LARGEST = 2**63 - 1
MOMENTS = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z")
FIELDS = ("startTime", "completionTime", "attemptTime", "resumeTime", "retryTime", "activeSince")
PHASES = ("Pending", "Running", "Restarting", "Suspended", "Completed", "Failed")
LIMITS = {"activeDeadlineSeconds": 60, "startupDeadlineSeconds": 60, "ttlSecondsAfterFinished": 60}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_status_may_have_any_times(field, moment, phase):
    of = job().worker(2).spec(**LIMITS).status(phase=phase, **{field: moment})
    built = snapshot(of.metadata(creationTimestamp="2026-01-01T11:59:00Z")).running("worker", 0)
    decided = built.plan()
    assert decided.status.phase in Phase
    assert decided.requeue_after_seconds is None or decided.requeue_after_seconds >= 0
    msgspec.json.decode(msgspec.json.encode(built.status(decided.status).job), type=PaddleJob)


@pytest.mark.parametrize("limit", [1, 2**31, LARGEST])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_job_may_be_of_any_age(moment, limit):
    of = job().worker(1).spec(**dict.fromkeys(LIMITS, limit)).metadata(creationTimestamp=moment)
    assert snapshot(of).plan().status.phase in (Phase.PENDING, Phase.FAILED)
    ended = snapshot(of).phase(Phase.COMPLETED, completion_time=NOW).later(3600).plan()
    assert any(isinstance(action, DeleteJob) for stage in ended.stages for action in stage) is (limit == 1)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_pod_may_have_any_times(moment):
    of = job().ps(1).worker(1).metadata(creationTimestamp=NOW.isoformat())
    built = snapshot(of).running("worker", 0)
    ended = {"exitCode": 137, "startedAt": moment, "finishedAt": moment}
    status = {"phase": "Failed", "containerStatuses": [{"name": "paddle", "state": {"terminated": ended}}]}
    built.pod("ps", 0, status)
    decided = built.phase(Phase.RUNNING, restarts=3).seen_for(1).plan()
    assert decided.status.phase is Phase.FAILED
    assert abs(decided.status.last_failure.time - NOW) < timedelta(days=1)
    assert decided.status.start_time == NOW


TERMINAL_TEXTS = {
    "colours": ("\x1b[1;31mValueError\x1b[0m: no data\n\x1b[0m\n", "ValueError: no data"),
    "a progress bar": ("10%\r50%\r\x1b[2K100% done", "100% done"),
    "a title": ("\x1b]0;train\x07loss 0.1", "loss 0.1"),
    "bytes of a binary file": ("a\x00b\x07c\x7f", "abc"),
    "text written backwards": ("\u202eevil\u202c", "evil"),
    "an escape that was cut off": ("error\x1b[3", "error"),
    "Chinese": ("训练失败：没有数据", "训练失败：没有数据"),
}


@pytest.mark.parametrize(("written", "shown"), TERMINAL_TEXTS.values(), ids=TERMINAL_TEXTS)
def test_what_a_program_wrote_for_a_terminal_is_shown_as_text(written, shown):
    assert termination_message(written) == shown
    assert one_line(written).isprintable()


@pytest.mark.parametrize("part", ["x", " \n", "\x1b[0m", "\x1b]", "\x00", "\x1b[0"])
def test_a_megabyte_of_text_costs_little(part):
    text = part * (2**20 // len(part))
    began = time.process_time()
    assert len(one_line(text)) <= MESSAGE_LENGTH
    assert len(termination_message(text)) <= MESSAGE_LENGTH
    assert time.process_time() - began < 2.0  # a moment; reading it again for every part takes minutes


def test_a_full_range_of_host_ports_is_searched_once():
    taken = set(range(30000, 60000, 20))
    began = time.process_time()
    for number in range(200):
        assert choose_base_port(f"uid-{number}", (30000, 59999), taken) is None
    assert time.process_time() - began < 2.0


def seconds_for(workers: int) -> float:
    """Return the CPU time of a reconcile of a job that waits for one pod of so many."""
    one = snapshot(job().worker(1)).waiting("worker", 0).build()
    pods = tuple(renamed(one.pods[0], f"demo-worker-{index}") for index in range(workers - 1))
    many = msgspec.structs.replace(one, job=job().worker(workers).spec(elastic=1).build(), pods=pods)
    began = time.process_time()
    plan(many)
    return time.process_time() - began


def renamed(pod: Pod, name: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name, uid=name))


def test_a_pass_over_five_thousand_pods_costs_ten_times_one_over_five_hundred():
    few, many = (min(seconds_for(workers) for _ in range(3)) for workers in (500, 5000))
    assert many < 30 * few
