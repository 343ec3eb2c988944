"""What is shown of a run: the board, its view, plain lines and JSON."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime

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
    kubectl_status,
)
from paddlejob.api.v1 import Failure, PaddleJobStatus, Phase
from paddlejob.core.actions import Event, EventType
from paddlejob.local.input.documents import read
from paddlejob.local.runner import Ending
from paddlejob.local.store import run_directory
from paddlejob.local.store.logs import LogLines
from paddlejob.local.store.run_directory import Outcome, RunRecord, WrittenFile
from paddlejob.local.ui import output
from paddlejob.local.ui.json_lines import JsonOutput
from paddlejob.local.ui.live import LINES_AROUND, LiveOutput, clock, render, sparkline
from paddlejob.local.ui.plain import SLOW_SECONDS, PlainOutput
from paddlejob.local.ui.view import RunView

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
def test_pod_states(seen, state):
    assert kubectl_status(seen) == state


@pytest.fixture
def info(tmp_path):
    record = RunRecord(job=JOB, notes=("a note",), python="/bin/python (--python)")
    return run_directory.create(tmp_path, "job"), record


@pytest.fixture
def view(info):
    view = RunView(*info)
    for name in ("worker-1", "ps-0", "worker-0"):
        view.on_pod(pod(name))
    return view


def test_pods_are_in_order_of_role_and_rank(view):
    assert [str(row.replica) for row in view.rows()] == ["ps-0", "worker-0", "worker-1"]


def test_only_visible_changes_are_reported(view):
    assert view.on_pod(pod("worker-0")) == ""
    assert view.on_pod(pod("worker-0", restarts=1)) == "Running"


def test_cleanup_keeps_the_final_state_of_a_pod(view):
    view.on_pod(pod("worker-0", ended(3), "Failed"))
    assert view.on_pod(pod("worker-0", ended(3), "Failed", leaving=True)) == ""
    assert view.on_pod_gone("job-worker-0") == ""
    assert view.rows()[1].state == "Error 3"


def test_a_pod_that_was_stopped_is_stopped(view):
    view.on_pod(pod("ps-0", leaving=True))
    assert view.on_pod_gone("job-ps-0") == "Stopped"


def test_the_view_keeps_the_last_line_and_the_last_progress(view):
    view.on_log(LogLines("job-worker-0", "main", b"step 3/9 loss 0.5\nsaving\n"))
    row = view.rows()[1]
    assert (row.last_line, str(row.progress)) == ("saving", "step 3/9 loss 0.5")
    view.on_log(LogLines("job-worker-0", "main", b"step 4/9 loss 0.4\n"))
    assert (row.last_line, str(row.progress)) == ("", "step 4/9 loss 0.4")


def test_a_progress_bar_counts_before_its_line_ends(view):
    view.on_log(
        LogLines("job-worker-0", "main", b"", unfinished=b"\b\b\rstep 3/9 [>..] - loss: 0.5 - ETA: 1s")
    )
    assert str(view.rows()[1].progress) == "step 3/9 loss 0.5"


def test_restarts_of_the_whole_job_are_restarts_of_its_pods(view):
    view.on_pod(pod("worker-0", restarts=2))
    view.on_job(at_phase(Phase.RUNNING, restarts=1))
    assert [view.restarts(row) for row in view.rows()] == [1, 3, 1]
    assert "RESTARTS" in shown(view)


def test_a_suspended_run_shows_how_to_resume_it(view, info):
    view.on_job(at_phase(Phase.SUSPENDED, "set spec.suspend to false to resume"))
    assert view.message == f"resume it with `paddlejob resume {info[0].name}`"


def test_sidecar_output_is_not_progress(view):
    lines = LogLines("job-worker-0", "side", b"hello\n")
    view.on_log(lines)
    assert view.rows()[1].last_line == ""
    assert view.label(lines) == "worker-0/side"


def test_a_pod_that_was_scaled_away_is_not_shown(view):
    view.on_pod_gone("job-worker-1")
    assert [str(row.replica) for row in view.rows()][-1] == "worker-1"
    fewer = msgspec.structs.replace(JOB.spec, worker=msgspec.structs.replace(JOB.spec.worker, replicas=1))
    view.on_job(msgspec.structs.replace(JOB, spec=fewer))
    assert [str(row.replica) for row in view.rows()][-1] == "worker-0"


def test_the_last_view_of_a_stopped_run_shows_its_ending(view):
    view.on_job(at_phase(Phase.RUNNING, "2 workers running"))
    head = shown(view, ending=Ending.INTERRUPTED).splitlines()[0]
    assert "Interrupted" in head
    assert "unning" not in head


def shown(view, footer="footer", height=24, width=100, ending=None):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(view, footer, height=height, ending=ending))
    return console.file.getvalue()


def test_the_percentage_is_rounded(view):
    view.on_log(LogLines("job-worker-1", "main", b"step 29/100 loss 0.5\n"))
    assert "29%" in shown(view)


def test_the_view_has_the_job_its_pods_and_their_progress(view):
    view.on_job(at_phase(Phase.RUNNING, "1 ps and 2 workers running"))
    view.on_log(LogLines("job-worker-1", "main", b"epoch 2/3 step 3/9 loss 0.5\n"))
    lines = shown(view).splitlines()
    assert re.match(r"job  Running  (\d+m)?\d+s  1 ps and 2 workers running", lines[0])
    assert lines[1].split() == ["POD", "STATE", "STEP", "DONE", "LOSS"]
    assert lines[4].split() == ["worker-1", "Running", "2/3", "12/27", "━━━━──────", "44%", "0.5"]
    assert lines[-1].startswith("footer")


def test_time_and_level_are_removed_from_the_last_line(view):
    view.on_log(
        LogLines("job-worker-0", "main", b"[2026-11-16 06:04:43,073] [    INFO] distributed: joined\n")
    )
    assert shown(view).splitlines()[3].split() == ["worker-0", "Running", "distributed:", "joined"]


def test_more_pods_than_lines_are_counted_and_the_footer_stays(info):
    view = RunView(*info)
    for index in range(30):
        view.on_pod(pod(f"worker-{index}"))
    view.on_pod(pod("worker-29", ended(3), "Failed"))
    lines = shown(view, height=LINES_AROUND + 3, width=40).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["worker-0", "worker-1", "worker-29", "and", "footer"]
    assert lines[-2].strip() == "and 27 Running"
    assert len(lines) < LINES_AROUND + 3


CURVES = {
    "falls": ([4, 3, 2, 1], "█▆▃▁"),
    "long ones are thinned out": ([float(each) for each in range(100)], "▁▁▂▃▄▅▆▇██"),
    "level": ([1, 1, 1], "▁▁▁"),
    "one point is no curve": ([1], ""),
}


@pytest.mark.parametrize(("losses", "curve"), CURVES.values(), ids=CURVES)
def test_losses_are_a_curve(losses, curve):
    assert sparkline(losses, 10) == curve


def test_a_quiet_worker_is_marked(view):
    view.on_log(LogLines("job-worker-0", "main", b"step 1/9 eta: 1:00:00\nabout to hang\n"))
    assert "ETA" in shown(view)
    view.rows()[1].last_output -= 75
    assert "(quiet for 1m15s) about to hang" in shown(view)
    assert "ETA" not in shown(view)


def test_only_a_completed_pod_is_at_100_percent(view):
    view.on_log(LogLines("job-worker-0", "main", b"step 9/9\n"))
    assert "99%" in shown(view)
    view.on_pod(pod("worker-0", ended(0, "Completed"), "Succeeded"))
    assert "100%" in shown(view)


def test_a_restarted_program_begins_no_second_pass(view):
    lines = LogLines("job-worker-0", "main", b"step 9/9\n")
    view.on_log(lines)
    view.on_pod(pod("worker-0", restarts=1))
    view.on_log(LogLines("job-worker-0", "main", b"step 1/9\n"))
    assert str(view.rows()[1].progress) == "step 1/9"


def test_the_live_view_limits_a_flood(info):
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    output = LiveOutput("all", console)
    output.on_start(*info)
    output.on_pod(pod("worker-0"))
    output.on_log(
        LogLines("job-worker-0", "main", b"".join(b"line %d\n" % n for n in range(1000)), skipped=5)
    )
    output.on_event(Event(EventType.WARNING, "Restarting", "worker-1 failed"))
    output.on_interrupt(1)
    output.tick()
    output.on_end(Ending.INTERRUPTED, Outcome())
    text_shown = console.file.getvalue()
    assert "line 999" in text_shown
    assert "line 799" not in text_shown
    assert "some lines are omitted" in text_shown
    assert "Restarting: worker-1 failed" in text_shown
    assert "job Interrupted in" in text_shown


@pytest.fixture
def lines():
    return io.StringIO()


@pytest.fixture
def plain(info, lines):
    """Plain output in which the words of the pods and ours stand in one place, as in the log of a CI."""

    class Words:
        def write(self, text):
            lines.write(text.decode())

        def flush(self):
            pass

    output = PlainOutput("all", output=Words(), messages=lines)
    output.on_start(*info)
    return output


def test_plain_output_skips_unimportant_changes(plain, lines):
    for count in (3, 2, 1):
        plain.on_job(at_phase(Phase.STARTING, f"waiting for {count} of 3 pods to start"))
    plain.on_pod(pod("worker-0", waiting("ContainerCreating"), "Pending"))
    plain.on_pod(pod("worker-0"))
    plain.on_event(Event(EventType.NORMAL, "CreatedPods", "created 2 workers"))
    plain.on_event(Event(EventType.WARNING, "AliasUsed", "write it that way"))
    plain.on_job(at_phase(Phase.RUNNING, "1 ps and 2 workers running"))
    plain.on_job(at_phase(Phase.COMPLETED, "all 2 workers succeeded"))
    assert lines.getvalue().splitlines()[0] == "note: a note"
    assert lines.getvalue().splitlines()[2:] == [
        "AliasUsed: write it that way",
        "job: Running: 1 ps and 2 workers running",
    ]


def test_a_job_that_does_not_start_shows_the_reason(plain, lines, monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    plain.on_job(at_phase(Phase.STARTING, "waiting for 3 of 3 pods to start"))
    plain.tick()
    assert "waiting for" not in lines.getvalue()
    now += SLOW_SECONDS + 1
    plain.tick()
    plain.tick()
    assert lines.getvalue().count("job: Starting: waiting for 3 of 3 pods to start") == 1


def test_the_end_of_a_pod_is_printed_after_its_last_line(plain, lines):
    plain.on_pod(pod("worker-0"))
    plain.on_pod(pod("worker-0", ended(3), "Failed"))
    plain.on_event(Event(EventType.WARNING, "Restarting", "attempt 1"))
    plain.on_log(LogLines("job-worker-0", "main", b"Traceback\n"))
    plain.tick()
    plain.on_log(LogLines("job-worker-0", "main", b"ValueError\n"))
    plain.tick()
    assert lines.getvalue().splitlines()[2:] == [
        "worker-0 | Traceback",
        "worker-0 | ValueError",
        "job: worker-0 Error 3",
        "Restarting: attempt 1",
    ]


def test_held_lines_are_printed_at_the_end(plain, lines):
    plain.on_pod(pod("worker-0", ended(3), "Failed"))
    plain.on_log(LogLines("job-worker-0", "main", b"last\n"))
    plain.on_job(at_phase(Phase.FAILED, "worker-0 exited with code 3"))
    plain.on_end(Ending.FAILED, Outcome())
    said = lines.getvalue().splitlines()[2:]
    assert said[:2] == ["worker-0 | last", "job: worker-0 Error 3"]
    assert said[2].startswith("job Failed in ")
    assert said[2].endswith(": worker-0 exited with code 3")
    assert len(said) == 3


def test_json_lines_are_complete_objects(info):
    stream = io.BytesIO()
    output = JsonOutput("worker-0", stream)
    output.on_start(*info)
    output.on_job(at_phase(Phase.RUNNING, "fine"))
    output.on_job(at_phase(Phase.RUNNING, "fine"))
    output.on_pod(pod("worker-0"))
    output.on_log(LogLines("job-worker-0", "main", b"one\nstep 1/2 loss 3 eta: 0:00:09\n"))
    output.on_log(LogLines("job-worker-1", "main", b"three\n"))
    output.on_event(Event(EventType.NORMAL, "Running", "fine"))
    output.tick()
    output.tick()
    output.on_pod(pod("worker-0", ended(3), "Failed"))
    output.on_pod_gone("job-worker-0")
    output.on_interrupt(1)
    output.on_end(
        Ending.FAILED, Outcome("done auc 0.9", {"auc": 0.9}, (WrittenFile("job-worker-0", "a", "/a"),))
    )
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = ["run", "note", "job", "pod", "log", "log", "event", "progress", "pod", "pod"]
    kinds += ["interrupted", "result"]
    assert [line["type"] for line in lines] == kinds
    assert all(line["time"].endswith("Z") for line in lines)
    assert (lines[8]["state"], lines[8]["exitCode"]) == ("Error 3", 3)
    told = {"step": 1, "steps": 2, "loss": 3.0, "etaSeconds": 9, "fraction": 0.5, "pod": "job-worker-0"}
    assert lines[7].items() >= told.items()
    result = {"result": "Failed", "exitCode": 1, "summary": "done auc 0.9", "metrics": {"auc": 0.9}}
    assert lines[-1].items() >= result.items()
    assert lines[-1]["files"] == [{"pod": "job-worker-0", "path": "a", "location": "/a"}]


def test_a_failure_ends_with_the_last_lines_of_the_pod_that_failed(view, info):
    log = info[0].log("job-worker-1", "main")
    log.parent.mkdir()
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    failure = Failure(attempt=2, pod="job-worker-1", message="worker-1 exited with code 1")
    view.on_job(at_phase(Phase.FAILED, failure.message, attempt=2, last_failure=failure))
    told = list(output.details(view, Ending.FAILED, Outcome(), selection="none"))
    assert (told[0], len(told)) == ("  worker-1 | line 85", 15)
    assert not list(output.details(view, Ending.FAILED, Outcome(), selection="all"))
    assert output.verdict(view, Ending.FAILED, Outcome()).endswith("s: worker-1 exited with code 1")


def test_a_failure_of_an_earlier_attempt_did_not_end_the_job(view, info):
    failure = Failure(attempt=0, pod="job-worker-1", message="worker-1 exited with code 137")
    message = "ran longer than activeDeadlineSeconds 60"
    view.on_job(at_phase(Phase.FAILED, message, attempt=1, last_failure=failure))
    assert not list(output.details(view, Ending.FAILED, Outcome(), selection="none"))


CLOCKS = {0: "0s", 59: "59s", 60: "1m00s", 3599: "59m59s", 3600: "1h00m"}


@pytest.mark.parametrize(("seconds", "expected"), CLOCKS.items(), ids=CLOCKS.values())
def test_durations(seconds, expected):
    assert clock(seconds) == expected
