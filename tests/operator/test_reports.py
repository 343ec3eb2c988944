"""What becomes of a report once it is known who sent it, and how often reports are asked for."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from paddlejob.api.meta import ObjectKey, ObjectMeta
from paddlejob.api.pod import Pod, PodSpec
from paddlejob.api.v1 import TrainingProgress
from paddlejob.kube import errors
from paddlejob.kube.resource import SECRETS
from paddlejob.operator.reports import tokens
from paddlejob.operator.reports.certificate import SECRET_NAME
from paddlejob.operator.reports.intake import ReportIntake, recorder_files
from paddlejob.operator.reports.rank_registry import MAX_STACK_TEXT, SILENT_SECONDS, RankRegistry
from paddlejob.operator.reports.tokens import BusyError, PodIdentity, RefusedError, TokenReviewer
from paddlejob.operator.settings import OperatorSettings, ReportSettings
from paddlejob.recorder import operator_sink
from paddlejob.recorder import progress as recorder_progress
from paddlejob.training import hangs, report_rate
from paddlejob.training.report_rate import Bucket
from paddlejob.training.reports import MAX_RANKS, Report, read_report
from paddlejob.training.trainjob import parse_update
from simkube import virtual_loop
from simkube.build import job
from simkube.operator import Operator
from tests.recorder.interpreter import PACKAGE
from tests.support.simulated import simulated

JOB, OTHER = ObjectKey("team", "demo"), ObjectKey("team", "other")
SOURCE = "10.0.0.1"
POD = PodIdentity("team", "demo-worker-0", "uid-0")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name: str, uid: str) -> Pod:
    return Pod(ObjectMeta(name, "team", uid=uid), PodSpec(node_name="node-a"))


# --- pace


@pytest.mark.parametrize(
    ("reporters", "seconds"), [(0, 5), (1, 5), (250, 5), (1_000, 20), (10_000, 200), (1_000_000, 300)]
)
def test_however_many_report_the_operator_receives_so_many_a_second(reporters: int, seconds: float):
    assert report_rate.next_seconds(reporters) == seconds


@pytest.mark.parametrize(
    ("reporters", "seconds"),
    [
        pytest.param({"a": 3200, "b": 8}, {"a": 3200 / 48.4, "b": 5}, id="many ranks slow down their own"),
        pytest.param({"a": 1000, "b": 1000}, {"a": 40, "b": 40}, id="equal namespaces"),
        pytest.param({"a": 3200, "b": 800, "c": 25}, {"a": 3200 / 22.5, "b": 800 / 22.5, "c": 5}, id="three"),
        pytest.param({"a": 100, "b": 100}, {"a": 5, "b": 5}, id="room for all"),
        pytest.param({"a": 3200}, {"a": 64, "b": 5}, id="a namespace alone, and one without ranks"),
    ],
)
def test_ranks_of_one_namespace_slow_down_no_other(reporters, seconds):
    registry = RankRegistry()
    for namespace, ranks in reporters.items():
        for rank in range(ranks):
            name = f"demo-worker-{rank // MAX_RANKS}"
            sender = Pod(ObjectMeta(name, namespace, uid=f"{namespace} {name}"), PodSpec(node_name="node-a"))
            registry.add_report(ObjectKey(namespace, "demo"), sender, Report(rank=rank), 1.0)
    assert {name: registry.next_seconds(name) for name in seconds} == pytest.approx(seconds)
    registry.prune(lambda job: {f"{job.namespace} demo-worker-{number}" for number in range(50)}, 2.0)
    assert {name: registry.next_seconds(name) for name in seconds} == pytest.approx(seconds)


def test_recorders_accept_the_longest_reporting_interval():
    assert report_rate.MAX_SECONDS <= operator_sink.MAX_SECONDS < SILENT_SECONDS


def test_a_bucket_is_filled_at_its_rate_and_no_further_than_its_size():
    bucket = Bucket(rate=2, burst=3)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(101.0) for _ in range(3)] == [True, True, False]
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


# --- registry


def test_the_first_rank_that_reports_speaks_for_the_job():
    registry = RankRegistry()
    registry.add_report(JOB, pod("demo-worker-3", "uid-3"), Report(rank=3), 0.0)
    assert registry.leader(JOB) == 3
    registry.add_report(JOB, pod("demo-worker-1", "uid-1"), Report(rank=1), 1.0)
    registry.add_report(OTHER, pod("other-worker-0", "uid-0"), Report(rank=0), 1.0)
    assert (registry.leader(JOB), registry.leader(OTHER), registry.reporters) == (1, 0, 3)


@pytest.mark.parametrize(
    ("steps", "alive", "ranks"),
    [
        pytest.param(True, {"uid-0", "uid-1"}, [1], id="the others do not wait for it"),
        pytest.param(False, {"uid-0", "uid-1"}, [0, 1], id="it may be what the others wait for"),
        pytest.param(False, {"uid-1"}, [1], id="its pod is gone"),
    ],
)
def test_a_rank_that_is_silent_is_forgotten_unless_the_job_stands_still(steps, alive, ranks):
    registry, end = RankRegistry(), 2 * SILENT_SECONDS
    registry.add_report(JOB, pod("demo-worker-0", "uid-0"), Report(rank=0, step=1, phase="training"), 0.0)
    for second in range(0, int(end), 60):
        report = Report(rank=1, step=second if steps else 1, phase="training")
        registry.add_report(JOB, pod("demo-worker-1", "uid-1"), report, float(second))
    registry.prune(lambda _: alive, end)
    assert sorted(rank.last.rank for rank in registry.ranks(JOB, alive)) == ranks
    assert (registry.leader(JOB), registry.reporters) == (ranks[0], 1)


@pytest.mark.parametrize(("age_seconds", "is_new"), [(60, False), (0, True), (-60, True)])
def test_a_pod_is_new_to_an_operator_that_began_before_it(age_seconds: int, is_new: bool):
    registry, known = RankRegistry(), pod("demo-worker-0", "uid-0")
    assert registry.add_report(JOB, known, Report(), 0.0).pace.is_new
    registry.since = NOW
    created = NOW - timedelta(seconds=age_seconds)
    metadata = msgspec.structs.replace(known.metadata, uid="uid-1", creation_timestamp=created)
    fresh = msgspec.structs.replace(known, metadata=metadata)
    assert registry.add_report(JOB, fresh, Report(), 0.0).pace.is_new is is_new


@simulated
async def test_reports_are_new_from_the_time_that_an_operator_leads(cluster):
    # The Secret has no key, so that no port is opened.
    cluster.server.create(SECRETS, {"metadata": {"name": SECRET_NAME}, "data": {"tls.crt": "bm9uZQ=="}})
    settings = ReportSettings(url="https://reports.svc:8443", address="127.0.0.1:0")
    operator = Operator(cluster.client, OperatorSettings(reports=settings))
    await asyncio.sleep(60)
    began = virtual_loop.now()
    await operator.run_for(1)
    since = operator.progress.intake.watchdog._registry.since
    assert abs(since - began) < timedelta(seconds=2)


def test_nothing_is_kept_of_a_job_that_is_gone():
    registry = RankRegistry()
    registry.add_report(JOB, pod("demo-worker-0", "uid-0"), Report(), 0.0)
    registry.prune(lambda _: set(), 1.0)
    assert (registry.jobs(), registry.reporters) == ([], 0)


def test_a_pod_fills_no_memory_with_ranks_that_it_cannot_have():
    registry = RankRegistry()
    for rank in range(MAX_RANKS):
        registry.add_report(JOB, pod("demo-worker-0", "uid-0"), Report(rank=rank), 0.0)
    with pytest.raises(ValueError, match="more than 64 ranks in one pod"):
        registry.add_report(JOB, pod("demo-worker-0", "uid-0"), Report(rank=MAX_RANKS), 0.0)
    registry.add_report(JOB, pod("demo-worker-1", "uid-1"), Report(rank=MAX_RANKS), 0.0)
    registry.add_report(JOB, pod("demo-worker-0", "uid-0"), Report(rank=5), 1.0)
    assert registry.reporters == MAX_RANKS + 1


def test_a_pod_that_does_not_keep_to_the_pace_is_refused_and_others_are_not():
    registry = RankRegistry()
    assert sum(registry.may_report("uid-0", 10.0) for _ in range(10_000)) == 2 * MAX_RANKS
    assert registry.may_report("uid-1", 10.0)
    assert registry.may_report("uid-0", 11.0)


def test_speed_is_measured_between_reports_of_one_process():
    registry = RankRegistry()

    def take(step: int, now: float, uid: str = "uid-0"):
        return registry.add_report(JOB, pod("demo-worker-0", uid), Report(step=step), now)

    assert take(100, 10.0).steps_per_second is None
    assert take(150, 20.0).steps_per_second == 5.0
    assert take(150, 30.0).steps_per_second is None
    restarted = take(3, 40.0)
    assert (restarted.steps_per_second, restarted.tracker.progress) == (None, None)
    assert take(9, 50.0, "uid-1").steps_per_second is None


def test_stacks_of_a_job_are_bounded_and_the_last_report_has_none():
    registry, dump = (
        RankRegistry(),
        "Thread 0x1 (most recent call first):\n" + '  File "/a/train.py", line 7 in f\n' * 200,
    )
    ranks = [
        registry.add_report(JOB, pod(f"demo-worker-{number}", f"uid-{number}"), Report(stacks=dump), 1.0)
        for number in range(60)
    ]
    kept = sum(len(rank.pace.position.dump) for rank in ranks)
    assert MAX_STACK_TEXT - 8192 < kept <= MAX_STACK_TEXT
    assert {rank.pace.position.place for rank in ranks} == {"f (train.py:7)"}
    assert {rank.last.stacks for rank in ranks} == {""}


# --- values that a pod has chosen

VALUES = {
    "a phase of the recorder": ({"phase": "evaluating"}, {"phase": "evaluating"}),
    "no phase": ({}, {"phase": ""}),
    "a phase of a program": ({"phase": "warm-up"}, {"phase": "other"}),
    "a phase that only the operator knows": ({"phase": "ended"}, {"phase": "other"}),
    "control characters": ({"phase": "\x1b]0;x\x07\u202e"}, {"phase": "other"}),
    "letters that look the same": ({"phase": "tr\u0430ining"}, {"phase": "other"}),
    "the last rank": ({"rank": 2 * MAX_RANKS - 1}, {"rank": 2 * MAX_RANKS - 1}),
    "a rank beyond the job": ({"rank": 2 * MAX_RANKS}, "rank 128: must be below 128"),
    "a negative rank": ({"rank": -1}, "Expected `int` >= 0"),
    "a pipeline stage": ({"stage": 3}, {"stage": 3}),
    "a stage beyond any pipeline": ({"stage": 1 << 20}, "Expected `int` <= 1048575"),
    "a negative stage": ({"stage": -1}, "Expected `int` >= 0"),
    "no number": ({"loss": "nan"}, {"loss": "nan"}),
    "infinity": ({"loss": "-inf"}, {"loss": "-inf"}),
    "a loss in other words": ({"loss": "1_0"}, "Invalid enum value"),
    "a huge loss": ({"loss": 1e308}, {"loss": 1e308}),
    "a step that is no number of steps": ({"step": 1 << 53}, "Expected `int` <= 9007199254740991"),
    "a time in the distance": ({"ownSeconds": 1e9}, "Expected `float` < 1000000000.0"),
    "a negative time": ({"waitingSeconds": -1}, "Expected `float` >= 0"),
    "several processes": ({"localSize": 8}, {"local_size": 8}),
    "more processes than a machine has": ({"localSize": 1 << 20}, "Expected `int` <= 1024"),
    "an endless name": ({"phase": "x" * 5000}, {"phase": "other"}),
    "a field that is not known": ({"colour": "red"}, {}),
}


@pytest.mark.parametrize(("sent", "expected"), VALUES.values(), ids=VALUES)
def test_values_of_a_report_are_bounded_before_they_are_used(sent: dict, expected: dict | str):
    body = json.dumps(sent).encode()
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=re.escape(expected)):
            read_report(body, pods=2)
    else:
        assert read_report(body, pods=2) == Report(**expected)


def test_a_pod_fills_no_memory_with_phases():
    registry = RankRegistry()
    for number in range(200):
        report = read_report(json.dumps({"phase": f"phase {number}", "step": number}).encode(), pods=1)
        rank = registry.add_report(JOB, pod("demo-worker-0", "uid-0"), report, float(number))
    assert rank.pace._longest.keys() == {"other"}


def test_the_phases_are_those_of_the_recorder():
    phases = recorder_progress.STARTING, recorder_progress.TRAINING
    phases += recorder_progress.EVALUATING, recorder_progress.SAVING
    assert [hangs.known_phase(phase) for phase in phases] == list(phases)


# --- tokens


def token_of(pod: PodIdentity = POD, *, lasts_seconds: float = 3600, audience="paddlejob-recorder", mark=""):
    binding = {"namespace": pod.namespace, "pod": {"name": pod.name, "uid": pod.uid}}
    claims = {
        "aud": [audience],
        "exp": (NOW + timedelta(seconds=lasts_seconds)).timestamp(),
        "kubernetes.io": binding,
        "jti": mark,
    }
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


class Reviews:
    """Stands for the API server's answers, which tests/apiserver has from a real one."""

    def __init__(self) -> None:
        self.asked = 0
        self.status = {
            "authenticated": True,
            "audiences": ["paddlejob-recorder"],
            "user": {
                "username": "system:serviceaccount:team:default",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["demo-worker-0"],
                    "authentication.kubernetes.io/pod-uid": ["uid-0"],
                },
            },
        }
        self.error: errors.KubeError | None = None

    def vouch_for(self, uid: str) -> None:
        self.status["user"]["extra"]["authentication.kubernetes.io/pod-uid"] = [uid]

    async def create(self, _resource, _namespace, body, *, type):  # noqa: A002
        self.asked += 1
        assert body["spec"]["audiences"] == ["paddlejob-recorder"]
        await asyncio.sleep(0.1)
        if self.error:
            raise self.error
        return msgspec.convert({"status": self.status}, type)


def reviewed(act, *, known=lambda _: True) -> None:
    async def main() -> None:
        reviews = Reviews()
        await act(TokenReviewer(reviews, is_known=known, now=lambda: NOW), reviews)

    virtual_loop.run(main(), seed=1)


def test_a_token_is_reviewed_once_for_all_processes_of_its_pod():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        identities = await asyncio.gather(*(reviewer.identify(token_of(), SOURCE) for _ in range(8)))
        assert set(identities) == {POD}
        await reviewer.identify(token_of(), SOURCE)
        assert reviews.asked == 1
        await asyncio.sleep(tokens.VALID_SECONDS)
        await reviewer.identify(token_of(), SOURCE)
        assert reviews.asked == 2

    reviewed(act)


def test_a_review_does_not_outlast_its_token():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        await reviewer.identify(token_of(lasts_seconds=60), SOURCE)
        reviews.status = {"authenticated": False}
        await asyncio.sleep(61)
        with pytest.raises(RefusedError):
            await reviewer.identify(token_of(lasts_seconds=60), SOURCE)

    reviewed(act)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"authenticated": False}, id="refused"),
        pytest.param({"audiences": ["https://kubernetes.default.svc"]}, id="an audience that does not count"),
        pytest.param({"user": {"username": "system:serviceaccount:team:default"}}, id="not bound to a pod"),
        pytest.param({"user": {"username": "system:node:a"}}, id="not a service account"),
    ],
)
def test_a_token_that_the_api_server_refuses_is_not_reviewed_again(status: dict):
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        reviews.status |= status
        for _ in range(3):
            with pytest.raises(RefusedError, match="refused by the API server"):
                await reviewer.identify(token_of(), SOURCE)
        assert reviews.asked == 1

    reviewed(act)


def test_claims_that_the_review_does_not_confirm_are_refused():
    async def act(reviewer: TokenReviewer, _: Reviews) -> None:
        with pytest.raises(RefusedError):
            await reviewer.identify(token_of(PodIdentity("team", "other-worker-0", "uid-9")), SOURCE)

    reviewed(act)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        "a.e30.c",
        "x" * 20000,
        "ä.ö.ü",
        token_of(audience="vault"),
        "a." + "A" * 5 + ".c",
        pytest.param(f"a.{base64.urlsafe_b64encode(b'[' * 9000).decode()}.c", id="nested deeply"),
    ],
)
def test_an_invalid_token_costs_no_review(token: str):
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        with pytest.raises(RefusedError):
            await reviewer.identify(token, SOURCE)
        assert reviews.asked == 0

    reviewed(act)


def test_an_unknown_pod_costs_no_review():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        with pytest.raises(RefusedError, match="not a pod of a running PaddleJob"):
            await reviewer.identify(token_of(), SOURCE)
        assert reviews.asked == 0

    reviewed(act, known=lambda _: False)


def test_forged_tokens_use_up_the_reviews_of_their_source_only():
    """Also when they name the pod of another, whose name and UID are no secrets."""

    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        status, reviews.status = reviews.status, {"authenticated": False}
        flood = (reviewer.identify(token_of(mark=str(number)), "10.0.0.66") for number in range(1000))
        await asyncio.gather(*flood, return_exceptions=True)
        assert reviews.asked == tokens.SOURCE_REVIEWS_AT_ONCE
        reviews.status = status
        assert await reviewer.identify(token_of(), SOURCE) == POD
        with pytest.raises(BusyError):
            await reviewer.identify(token_of(mark="another"), "10.0.0.66")

    reviewed(act)


def test_pods_that_share_an_address_do_not_use_up_its_reviews():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        for number in range(60):
            reviews.vouch_for(f"uid-{number}")
            await reviewer.identify(token_of(PodIdentity("team", "demo-worker-0", f"uid-{number}")), SOURCE)
        assert reviews.asked == 60

    reviewed(act)


def test_a_pod_with_many_valid_tokens_uses_up_the_reviews_of_its_source():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        flood = (reviewer.identify(token_of(mark=str(number)), SOURCE) for number in range(100))
        await asyncio.gather(*flood, return_exceptions=True)
        assert reviews.asked == tokens.SOURCE_REVIEWS_AT_ONCE
        with pytest.raises(BusyError):
            [await reviewer.identify(token_of(mark=str(number)), SOURCE) for number in range(100, 110)]

    reviewed(act)


def test_no_flood_of_tokens_reaches_the_api_server():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        reviews.status = {"authenticated": False}
        pods = (PodIdentity("team", f"demo-worker-{number}", f"uid-{number}") for number in range(1000))
        flood = (reviewer.identify(token_of(one), one.uid) for one in pods)
        answers = await asyncio.gather(*flood, return_exceptions=True)
        assert reviews.asked == tokens.REVIEWS_AT_ONCE
        assert {type(answer) for answer in answers} == {RefusedError, BusyError}

    reviewed(act)


def test_an_unreachable_api_server_refuses_no_token():
    async def act(reviewer: TokenReviewer, reviews: Reviews) -> None:
        reviews.error = errors.TransportError("connection refused")
        with pytest.raises(BusyError):
            await reviewer.identify(token_of(), SOURCE)
        reviews.error = None
        assert await reviewer.identify(token_of(), SOURCE) == POD

    reviewed(act)


# --- what is told of a job


def test_nothing_is_written_before_the_first_step():
    """A write is not followed by another one for a while, in which the first step would not be seen."""

    class Writer:
        def __init__(self) -> None:
            self.steps: list[int] = []

        def add_report(self, _job, _pod, told, _origin, _startup) -> None:
            self.steps.append(told.step)

    async def main() -> None:
        writer = Writer()
        intake = ReportIntake(
            None, None, writer, ReportSettings(), now=lambda: NOW, namespace="", record_event=print
        )
        for step in (0, 1, 2):
            intake._take(
                job("demo", "team").build(), pod("demo-worker-0", "uid-0"), Report(step=step, attempt=0)
            )
        assert writer.steps == [1, 2]

    virtual_loop.run(main(), seed=1)


@pytest.mark.parametrize(("local_size", "processes"), [(1, 0), (8, 8)])
def test_the_number_of_processes_is_written_if_there_are_several(local_size: int, processes: int):
    class Writer:
        def add_report(self, _job, _pod, told, _origin, _startup) -> None:
            assert told.processes == processes

    async def main() -> None:
        intake = ReportIntake(
            None, None, Writer(), ReportSettings(), now=lambda: NOW, namespace="", record_event=print
        )
        report = Report(step=1, attempt=0, local_size=local_size)
        intake._take(job("demo", "team").build(), pod("demo-worker-0", "uid-0"), report)

    virtual_loop.run(main(), seed=1)


# --- what pods are given


def test_pods_are_given_all_modules_of_the_recorder():
    files = recorder_files()
    assert {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")} == files.keys()
    assert "site/sitecustomize.py" in files
    assert sum(map(len, files.values())) < 500_000


def update(*metrics: tuple[str, str], **status) -> bytes:
    """Return what Kubeflow's SDK sends."""
    listed = [{"name": name, "value": value} for name, value in metrics]
    status |= {"lastUpdatedTime": "2026-01-01T00:00:00+00:00", "metrics": listed}
    return msgspec.json.encode({"trainerStatus": status})


UPDATES = {
    "percent and time": (
        update(progressPercentage=45, estimatedRemainingSeconds=200),
        {"percent": 45, "eta": "3m20s"},
    ),
    "a fraction, as the SDK passes it on": (update(progressPercentage=45.9), {"percent": 46}),
    "the end": (
        update(progressPercentage=100, estimatedRemainingSeconds=0),
        {"percent": 99, "eta": "0s"},
    ),
    "metrics": (
        update(("loss", "0.23471"), ("currentEpoch", "2"), ("totalEpochs", "5"), ("global_step", "120")),
        {"loss": "0.2347", "epoch": 2, "epochs": 5, "step": 120},
    ),
    "of several losses the plain one": (
        update(("train_loss", "1"), ("eval_loss", "2"), ("loss", "3")),
        {"loss": "3"},
    ),
    "a loss that is not finite": (update(("loss", "nan")), {"loss": "nan"}),
    "metrics that are no numbers": (update(("loss", "low"), ("epoch", "inf"), ("step", "-1")), {}),
    "nothing": (b"{}", {}),
}


@pytest.mark.parametrize(("body", "expected"), UPDATES.values(), ids=UPDATES.keys())
def test_an_update_of_kubeflows_sdk_is_parsed(body: bytes, expected: dict):
    assert parse_update(body) == TrainingProgress(**expected)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        update(progressPercentage=101),
        update(estimatedRemainingSeconds=-1),
        update(progressPercentage="45"),
        update(*[("m", "1")] * 257),
    ],
)
def test_an_update_that_kubeflow_would_refuse_is_refused(body: bytes):
    with pytest.raises(msgspec.DecodeError):
        parse_update(body)
