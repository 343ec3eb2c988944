"""Whatever a pod sends as a report, in either protocol: taken, or refused with the documented errors."""

from __future__ import annotations

import asyncio
import base64
import json
import math

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from paddlejob.api.meta import ObjectKey, ObjectMeta
from paddlejob.api.pod import Pod, PodSpec
from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.operator.reports.rank_registry import RankRegistry
from paddlejob.operator.reports.tokens import RefusedError, TokenReviewer
from paddlejob.training.reports import read_report
from paddlejob.training.trainjob import parse_update
from tests.operator.test_reports import NOW
from tests.support.fuzz import TEXT, changed, encodable, mangled

REPORT = {
    "rank": 1,
    "phase": "training",
    "step": 7,
    "total": 100,
    "epoch": 1,
    "loss": 0.5,
    "ownSeconds": 0.1,
    "waitingSeconds": 0.2,
    "stage": 1,
    "waiting": True,
    "ended": False,
    "savedStep": 5,
    "resumed": True,
    "counted": True,
    "stacks": "Thread",
}
UPDATE = {
    "trainerStatus": {
        "progressPercentage": 45,
        "estimatedRemainingSeconds": 795649,
        "metrics": [{"name": name, "value": "4"} for name in ("loss", "step", "epoch", "total_epochs")],
        "lastUpdatedTime": "2026-01-23T05:32:52Z",
    }
}
PHASES = {"", "starting", "training", "evaluating", "saving", "other"}
DEEP = b"[" * 100_000


def bodies(good: object) -> st.SearchStrategy[bytes]:
    return (
        changed(good).map(lambda value: json.dumps(value).encode())
        | mangled(json.dumps(good)).map(encodable)
        | st.binary(max_size=40)
    )


@given(body=bodies(REPORT), later=bodies(REPORT), seconds=st.floats(0, 1e6))
@example(body=DEEP, later=b"{}", seconds=0)
@example(body=b'{"step": 9007199254740991}', later=b'{"step": 1, "loss": "inf"}', seconds=0)
@example(body=b'{"ownSeconds": 1e308, "step": 1}', later=b'{"ownSeconds": 0, "step": 2}', seconds=0)
def test_any_report_of_a_recorder(body: bytes, later: bytes, seconds: float):
    registry, pod = (
        RankRegistry(),
        Pod(ObjectMeta("demo-worker-0", "team", uid="uid-0"), PodSpec(node_name="node-a")),
    )
    for at, each in ((0.0, body), (seconds, later)):
        try:
            report = read_report(each, pods=1)
        except DECODE_ERRORS:
            continue
        rank = registry.add_report(ObjectKey("team", "demo"), pod, report, at)
        assert report.phase in PHASES
        assert rank.steps_per_second is None or math.isfinite(rank.steps_per_second)


@given(body=bodies(UPDATE))
@example(body=DEEP)
@example(body=json.dumps(UPDATE).replace('"4"', '"1e400"').encode())
@example(body=json.dumps(UPDATE).replace('"4"', '"nan"').encode())
@example(body=json.dumps(UPDATE).replace("795649", "1e308").encode())
def test_any_update_of_kubeflows_protocol(body: bytes):
    try:
        told = parse_update(body)
    except DECODE_ERRORS:
        return
    assert min(told.step, told.epoch or 0, told.epochs or 0) >= 0
    # It is written to the status, in JSON.
    assert json.loads(msgspec.json.encode(told)) is not None


CLAIMS = {
    "aud": ["paddlejob-recorder"],
    "exp": 1e12,
    "kubernetes.io": {"namespace": "team", "pod": {"name": "demo-worker-0", "uid": "uid-0"}},
}


def encoded(payload: bytes) -> str:
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


TOKENS = bodies(CLAIMS).map(lambda payload: f"a.{encoded(payload)}.b") | st.lists(TEXT).map(".".join)


@given(token=TOKENS)
@example(token=f"a.{encoded(json.dumps(CLAIMS).encode())}.\udcff")
@example(token=f"a.{encoded(DEEP[:9000])}.b")
@example(token=f"a.{encoded(json.dumps(CLAIMS).encode())}.b")
def test_any_token_names_a_pod_or_is_refused(token: str):
    asked: list[object] = []

    class Refusing:
        async def create(self, *_: object, type: type, **__: object) -> object:  # noqa: A002 - the client's word
            asked.append(None)
            return type()

    async def scenario() -> None:
        reviewer = TokenReviewer(Refusing(), is_known=lambda _: True, now=lambda: NOW)  # type: ignore[arg-type]
        try:
            await reviewer.identify(token, "10.0.0.1")
        except RefusedError:
            return
        raise AssertionError("a token was accepted that the API server does not know")

    asyncio.run(scenario())
