"""Missing rights: the sentence names the right to ask for, and what is not concerned works all the same."""

from __future__ import annotations

import pytest

from simkube.build import job

JOBS = "paddlejobs.batch.paddlepaddle.org"


@pytest.mark.parametrize(
    ("verb", "resource", "arguments", "needs"),
    [
        ("list", "paddlejobs", ("get",), f"get and list on {JOBS}"),
        ("list", "paddlejobs", ("get", "-w"), f"get and list on {JOBS}"),
        ("list", "paddlejobs", ("top",), f"get and list on {JOBS}"),
        ("list", "paddlejobs", ("logs", "@latest"), f"get and list on {JOBS}"),
        ("get", "paddlejobs", ("get", "demo"), f"get and list on {JOBS}"),
        ("get", "paddlejobs", ("suspend", "demo"), f"get and list on {JOBS}"),
        ("watch", "paddlejobs", ("get", "-w"), f"get, list and watch on {JOBS}"),
        ("watch", "paddlejobs", ("wait", "demo"), f"get, list and watch on {JOBS}"),
        ("watch", "paddlejobs", ("logs", "demo", "-f"), f"get, list and watch on {JOBS}"),
        ("watch", "pods", ("logs", "demo", "-f"), "get, list and watch on pods"),
        ("create", "paddlejobs", ("submit", "FILE"), f"create on {JOBS}"),
        ("create", "paddlejobs", ("submit", "FILE", "--dry-run=server"), f"create on {JOBS}"),
        ("patch", "paddlejobs", ("suspend", "demo"), f"patch on {JOBS}"),
        ("patch", "paddlejobs", ("stop", "demo"), f"patch on {JOBS}"),
        ("patch", "paddlejobs/scale", ("scale", "demo", "2"), f"patch on {JOBS}/scale"),
        ("delete", "paddlejobs", ("delete", "demo", "--yes"), f"delete on {JOBS}"),
        ("list", "pods", ("logs", "demo"), "get and list on pods"),
        ("list", "pods", ("top", "demo"), "get and list on pods"),
        ("list", "pods", ("env", "demo"), "get and list on pods"),
        ("list", "pods", ("exec", "demo", "--", "true"), "get and list on pods"),
        ("list", "pods", ("cp", "demo", "worker-0:/tmp", "x"), "get and list on pods"),
        ("list", "pods", ("port-forward", "demo", "80"), "get and list on pods"),
        ("get", "pods/log", ("logs", "demo"), "get on pods/log"),
        ("get", "pods/log", ("logs", "demo", "-f"), "get on pods/log"),
        ("get", "pods/exec", ("exec", "demo", "--", "true"), "get and create on pods/exec"),
        ("get", "pods/exec", ("cp", "demo", "worker-0:/tmp", "x"), "get and create on pods/exec"),
        ("list", "events", ("events", "demo"), "get and list on events"),
        ("list", "configmaps", ("history",), "get and list on configmaps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_the_missing_right_is_named(cluster, pdj, file, verb, resource, arguments, needs):
    pdj("submit", file(job().worker(2)))
    assert pdj("wait", "demo", "--for=running", "--timeout=60s").exit_code == 0
    cluster.front.denied = {(verb, resource)}
    result = pdj(*(str(file(job("new").worker(1))) if each == "FILE" else each for each in arguments))
    (sentence,) = result.stderr.splitlines()
    assert (result.exit_code, sentence) == (
        2,
        f"error: cannot {verb} {resource} in namespace default: needs {needs}",
    )


def test_a_job_is_described_without_what_may_not_be_seen(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    cluster.front.denied = {("list", "pods"), ("list", "events")}
    result = pdj("describe", "demo")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].split() == ["Name:", "demo"]
    assert "<cannot list pods in namespace default: needs get and list on pods>" in result.stdout
    assert "<cannot list events in namespace default: needs get and list on events>" in result.stdout
