"""The text for a terminal, and the JSON for programs."""

from __future__ import annotations

import json

from msgspec.structs import replace

from paddlejob.client.explain import Advice, Change, Explanation, Finding, FollowUp, explain
from paddlejob.client.explain.result import MAX_ADVICE, MAX_DETAILS, WIDTH, tidy
from simkube.build import job
from tests.client.explain.scene import node, pending, quota, seen

LOWER = Advice(
    "suspend it",
    Change("pdj", "demo", ({"op": "add", "path": "/spec/suspend", "value": True},)),
    FollowUp.RECREATE,
)
FAILED = Explanation(
    "team-a",
    "demo",
    "Failed",
    (
        Finding(
            "Error", "worker-1 exited with code 1", "worker-1", ("exit code 1",), (LOWER, Advice("wait"))
        ),
        Finding("NotEnoughRoom", "at most 2 of 3 workers fit now", "worker-2", advice=(Advice("add nodes"),)),
    ),
    exit_code=1,
    log=("Traceback", "  boom"),
    unseen=("cannot see nodes: needs list on nodes",),
)
TEXT = """\
demo: Failed: worker-1 exited with code 1
  exit code 1
Last lines of worker-1:
  | Traceback
  |   boom
What to do, one of:
  - suspend it
      kubectl -n team-a patch pdj demo --type=json -p '[{"op":"add","path":"/spec/suspend","value":true}]'
      kubectl pdj -n team-a suspend demo
      kubectl pdj -n team-a wait demo --for=suspended
      kubectl pdj -n team-a resume demo
  - wait
Also: at most 2 of 3 workers fit now
What to do:
  - add nodes
cannot see nodes: needs list on nodes"""


def test_the_text():
    assert str(FAILED) == TEXT


def test_the_rank_is_named_if_the_sentence_does_not():
    finding = Finding("NotEnoughRoom", "at most 2 of 3 workers fit now", "worker-2")
    text = str(Explanation("a", "demo", "Pending", (finding,)))
    assert text.splitlines()[1] == "  waiting for worker-2"


def test_the_json():
    told = FAILED.to_dict()
    assert json.loads(json.dumps(told)) == told
    assert (told["summary"], told["cause"], told["rank"], told["exitCode"]) == (
        "worker-1 exited with code 1",
        "Error",
        "worker-1",
        1,
    )
    assert told["findings"][0]["advice"][0] == {
        "text": LOWER.text,
        "change": {"resource": "pdj", "name": "demo", "patch": list(LOWER.change.patch)},
        "then": "recreate",
        "keeps": 1.0,
        "commands": list(LOWER.commands("team-a", "demo")),
    }


def test_several_causes_are_all_named():
    built = pending(job().worker(3, resources={"requests": {"cpu": "8"}}))
    found = explain(seen(built, quotas=[quota({"cpu": 8})], nodes=[node(cpu=4)]))
    assert [each.cause for each in found.findings] == ["QuotaExceeded", "NodeTooSmall"]
    assert "Also: no node has cpu 8 for a worker: the largest has 4" in str(found)


def test_what_others_say_at_length_is_cut():
    long = Finding("x", "word " * 1000, "", ("detail " * 1000,) * 100, (Advice("advice " * 1000),) * 100)
    short = tidy(long)
    assert max(len(short.summary), len(short.details[0]), len(short.advice[0].text)) <= WIDTH
    assert (len(short.details), len(short.advice)) == (MAX_DETAILS, MAX_ADVICE)


def test_a_local_run_is_not_patched():
    suspended = seen(job().worker(1).status(phase="Suspended", message="suspended"))
    (advice,) = explain(replace(suspended, run="demo-x7k2p")).advice
    assert advice.text == "resume it: paddlejob resume demo-x7k2p"
    assert advice.commands("default", "demo") == ()
