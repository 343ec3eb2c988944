"""What is shown of a run: the board, its view, plain lines and JSON."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from rich.console import Console

from local.jobs import job, role, text
from paddlejob.api import names
from paddlejob.api.meta import ObjectMeta
from paddlejob.api.pod import (
    ContainerRunning,
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    ContainerWaiting,
    Pod,
    PodStatus,
)
from paddlejob.api.v1 import Failure, PaddleJobStatus, Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.local.input.documents import read
from paddlejob.local.runner import Ending
from paddlejob.local.store import run_directory
from paddlejob.local.store.logs import LogLines
from paddlejob.local.ui import summary
from paddlejob.local.ui.json_lines import JsonOutput
from paddlejob.local.ui.live import LiveOutput, render
from paddlejob.local.ui.plain import PlainOutput
from paddlejob.local.ui.view import RunView, describe

JOB = read(text(job(ps=role(1), worker=role(2)))).job
RUNNING = ContainerState(running=ContainerRunning())


def ended(code, reason="Error"):
    return ContainerState(terminated=ContainerTerminated(exit_code=code, reason=reason))


def waiting(reason):
    return ContainerState(waiting=ContainerWaiting(reason))


def pod(name, state=RUNNING, phase="Running", *, leaving=False, restarts=0):
    metadata = ObjectMeta(
        name=f"job-{name}",
        labels={names.LABEL_RESOURCE_TYPE: name.rpartition("-")[0]},
        deletion_timestamp=datetime.now(UTC) if leaving else None,
    )
    container = ContainerStatus(name="main", state=state, restart_count=restarts)
    return Pod(metadata=metadata, status=PodStatus(phase=phase, container_statuses=(container,)))


def at_phase(phase, message="", **fields):
    return msgspec.structs.replace(JOB, status=PaddleJobStatus(phase=phase, message=message, **fields))


STATES = {
    "running": (pod("worker-0"), "Running"),
    "waiting": (pod("worker-0", waiting("CrashLoopBackOff"), "Running"), "CrashLoopBackOff"),
    "done": (pod("worker-0", ended(0, "Completed"), "Succeeded"), "Completed"),
    "failed": (pod("worker-0", ended(137), "Failed"), "Error 137"),
    "killed for lack of memory": (pod("worker-0", ended(137, "OOMKilled"), "Failed"), "OOMKilled 137"),
    "being deleted": (pod("worker-0", leaving=True), "Terminating"),
}


@pytest.mark.parametrize(("seen", "state"), STATES.values(), ids=STATES)
def test_a_pods_state_is_a_word_or_two(seen, state):
    assert describe(seen) == state


@pytest.fixture
def view():
    view = RunView(JOB)
    for name in ("worker-1", "ps-0", "worker-0"):
        view.on_pod(pod(name))
    return view


def test_pods_are_in_order_of_role_and_rank(view):
    assert [str(row.replica) for row in view.rows()] == ["ps-0", "worker-0", "worker-1"]


def test_only_what_a_person_would_notice_is_a_change(view):
    assert view.on_pod(pod("worker-0")) == ""
    assert view.on_pod(pod("worker-0", restarts=1)) == "Running"


def test_how_a_pod_ended_outlives_its_cleaning_up(view):
    view.on_pod(pod("worker-0", ended(3), "Failed"))
    assert view.on_pod(pod("worker-0", ended(3), "Failed", leaving=True)) == ""
    assert view.on_pod_gone("job-worker-0") == ""
    assert view.rows()[1].state == "Error 3"


def test_a_pod_that_was_stopped_is_stopped(view):
    view.on_pod(pod("ps-0", leaving=True))
    assert view.on_pod_gone("job-ps-0") == "Stopped"


def test_the_board_keeps_the_last_line_and_the_last_progress(view):
    view.on_log(LogLines("job-worker-0", "main", b"step 3/9 loss 0.5\nsaving\n"))
    row = view.rows()[1]
    assert (row.last_line, str(row.progress)) == ("saving", "step 3/9 loss 0.5")


def test_a_sidecars_words_are_not_the_trainers(view):
    lines = LogLines("job-worker-0", "side", b"hello\n")
    view.on_log(lines)
    assert view.rows()[1].last_line == ""
    assert view.speaker(lines) == "worker-0/side"


def test_a_pod_that_was_scaled_away_is_not_shown(view):
    view.on_pod_gone("job-worker-1")
    assert [str(row.replica) for row in view.rows()][-1] == "worker-1"
    fewer = msgspec.structs.replace(JOB.spec, worker=msgspec.structs.replace(JOB.spec.worker, replicas=1))
    view.on_job(msgspec.structs.replace(JOB, spec=fewer))
    assert [str(row.replica) for row in view.rows()][-1] == "worker-0"


def test_the_last_view_of_a_stopped_run_does_not_say_running(view):
    view.on_job(at_phase(Phase.RUNNING, "2 workers running"))
    console = Console(file=io.StringIO(), width=100)
    console.print(render(view, "", Ending.INTERRUPTED))
    [head, *_] = console.file.getvalue().splitlines()
    assert "Interrupted" in head
    assert "unning" not in head


@pytest.fixture
def local_run(tmp_path):
    run = run_directory.create(tmp_path, "job")
    return SimpleNamespace(runner=SimpleNamespace(job=JOB), run_directory=run, notes=("a note",))


def shown(view, footer="footer"):
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(render(view, footer))
    return console.file.getvalue()


def test_the_view_has_the_job_its_pods_and_their_progress(view):
    view.on_job(at_phase(Phase.RUNNING, "1 ps and 2 workers running"))
    view.on_log(LogLines("job-worker-1", "main", b"epoch 2 step 3/9 loss 0.5\n"))
    lines = shown(view).splitlines()
    assert lines[0].startswith("job  Running  0s  1 ps and 2 workers running")
    assert lines[1].split() == ["POD", "STATE", "RESTARTS", "PROGRESS", "LAST", "LINE"]
    assert lines[4].split()[:8] == ["worker-1", "Running", "epoch", "2", "step", "3/9", "loss", "0.5"]
    assert lines[-1].startswith("footer")


def test_a_worker_that_says_nothing_for_long_is_noticed(view):
    view.on_log(LogLines("job-worker-0", "main", b"about to hang\n"))
    view.rows()[1].last_output -= 75
    assert "(quiet for 1m15s) about to hang" in shown(view)


def test_a_live_flood_is_cut_to_what_a_person_can_read(local_run):
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    output = LiveOutput("all", console)
    output.on_start(local_run)
    output.on_pod(pod("worker-0"))
    output.on_log(
        LogLines("job-worker-0", "main", b"".join(b"line %d\n" % n for n in range(1000)), skipped=5)
    )
    output.on_event(Event(EventType.WARNING, "Restarting", "worker-1 failed"))
    output.on_interrupt(1)
    output.tick()
    output.on_end(Ending.INTERRUPTED)
    text_shown = console.file.getvalue()
    assert "line 999" in text_shown
    assert "line 799" not in text_shown
    assert "some lines are omitted" in text_shown
    assert "Restarting: worker-1 failed" in text_shown
    assert "job Interrupted in" in text_shown


def test_plain_lines_leave_out_what_is_no_news(local_run):
    words, news = io.BytesIO(), io.StringIO()
    output = PlainOutput("all", words=words, news=news)
    output.on_start(local_run)
    for count in (3, 2, 1):
        output.on_job(at_phase(Phase.STARTING, f"waiting for {count} of 3 pods to start"))
    output.on_pod(pod("worker-0", waiting("ContainerCreating"), "Pending"))
    output.on_pod(pod("worker-0"))
    output.on_event(Event(EventType.NORMAL, "CreatedPods", "created 2 workers"))
    output.on_event(Event(EventType.WARNING, "AliasUsed", "write it that way"))
    lines = news.getvalue().splitlines()
    assert lines[0] == "note: a note"
    assert lines[2:] == [
        "job: Starting: waiting for 3 of 3 pods to start",
        "job: worker-0 Running",
        "AliasUsed: write it that way",
    ]


def test_json_lines_are_complete_objects(local_run):
    stream = io.BytesIO()
    output = JsonOutput("worker-0", stream)
    output.on_start(local_run)
    output.on_job(at_phase(Phase.RUNNING, "fine"))
    output.on_job(at_phase(Phase.RUNNING, "fine"))
    output.on_pod(pod("worker-0", ended(3), "Failed"))
    output.on_pod_gone("job-worker-0")
    output.on_log(LogLines("job-worker-0", "main", b"one\ntwo\n"))
    output.on_log(LogLines("job-worker-1", "main", b"three\n"))
    output.on_event(Event(EventType.NORMAL, "Running", "fine"))
    output.on_interrupt(1)
    output.on_end(Ending.FAILED)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = ["run", "note", "job", "pod", "pod", "log", "log", "event", "interrupted", "result"]
    assert [line["type"] for line in lines] == kinds
    assert all(line["time"].endswith("Z") for line in lines)
    assert (lines[3]["state"], lines[3]["exitCode"]) == ("Error 3", 3)
    assert (lines[-1]["result"], lines[-1]["exitCode"]) == ("Failed", 1)


def test_a_failure_ends_with_the_last_lines_of_the_pod_that_failed(view, local_run):
    log = local_run.run_directory.log("job-worker-1", "main")
    log.parent.mkdir()
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    failure = Failure(attempt=2, pod="job-worker-1", message="worker-1 exited with code 1")
    view.on_job(at_phase(Phase.FAILED, failure.message, attempt=2, last_failure=failure))
    told = list(summary.lines(view, Ending.FAILED, local_run, shown="none"))
    assert told[0] == "  worker-1 | line 85"
    assert told[-2].endswith("s: worker-1 exited with code 1")
    assert told[-1] == f"see `paddlejob logs {local_run.run_directory.name}`"


def test_a_failure_of_an_earlier_attempt_did_not_end_the_job(view, local_run):
    failure = Failure(attempt=0, pod="job-worker-1", message="worker-1 exited with code 137")
    message = "ran longer than activeDeadlineSeconds 60"
    view.on_job(at_phase(Phase.FAILED, message, attempt=1, last_failure=failure))
    told = list(summary.lines(view, Ending.FAILED, local_run, shown="none"))
    assert told[0].startswith("job Failed in ")


CLOCKS = {0: "0s", 59: "59s", 60: "1m00s", 3599: "59m59s", 3600: "1h00m"}


@pytest.mark.parametrize(("seconds", "expected"), CLOCKS.items(), ids=CLOCKS.values())
def test_the_clock_reads_well(view, seconds, expected):
    view.began -= seconds
    assert f"  {expected}  " in shown(view).splitlines()[0]
