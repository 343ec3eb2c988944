"""What is wrong with the queue of Volcano in which a gang waits."""

from __future__ import annotations

import msgspec
import pytest

from simkube.build import job
from tests.core.gang_snapshots import (
    CPU,
    VOLCANO,
    cluster,
    pods,
    spec_of,
)

PENDING = "waiting for PodGroup demo: Pending"
ANOTHER = "set spec.schedulingPolicy.queue to another"


class TestTheQueue:
    """What is known of a queue of Volcano is told; PLAIN needs 4 CPUs and 4Gi."""

    def waiting(self, phase="Pending", **policy):
        of = job().ps(2, **CPU).worker(2, **CPU).spec(schedulingPolicy=policy)
        return cluster(of).pod_group(status={"phase": phase}, **spec_of(of))

    OBSTACLES = {
        "it does not exist": (
            {"queue": "research"},
            lambda built: built.queue("default"),
            f"queue research does not exist; create it or {ANOTHER}",
        ),
        "it is closed": (
            {"queue": "research"},
            lambda built: built.queue("research", state="Closed"),
            f"queue research is Closed; open it or {ANOTHER}",
        ),
        "the default queue is closing": (
            {},
            lambda built: built.queue("default", state="Closing"),
            f"queue default is Closing; open it or {ANOTHER}",
        ),
        "it allows for less": (
            {"queue": "research"},
            lambda built: built.queue("research", cpu="3500m", memory="16Gi"),
            (
                "the job needs cpu 4, but the capability of queue research is 3500m; raise the queue's "
                f"capability, lower the job's requests or replicas, or {ANOTHER}"
            ),
        ),
    }

    @pytest.mark.parametrize(("policy", "given", "words"), OBSTACLES.values(), ids=OBSTACLES)
    def test_what_can_be_known_is_told(self, policy, given, words):
        plan = given(self.waiting(**policy)).plan()
        assert plan.status.message == f"{PENDING}: {words}"

    FINE = {
        "queues are not known": lambda built: built,
        "it is open and has no limit": lambda built: built.queue("research"),
        "nobody has looked at it yet": lambda built: built.queue("research", state=""),
        "it allows for exactly as much": lambda built: built.queue("research", cpu=4, memory="4Gi"),
        "only other resources are limited": lambda built: built.queue("research", **{"x.org/y": 0}),
        "its limit means nothing": lambda built: built.queue("research", cpu="1e999999999"),
    }

    @pytest.mark.parametrize("given", FINE.values(), ids=FINE)
    def test_nothing_is_claimed_that_may_be_otherwise(self, given):
        assert given(self.waiting(queue="research")).plan().status.message == PENDING

    def test_what_volcano_says_itself_comes_first(self):
        said = {"type": "Unschedulable", "status": "True", "reason": "NotEnough", "message": "too little"}
        built = self.waiting().queue("default", state="Closed")
        spec = built._pod_groups[VOLCANO].spec
        built.pod_group(status={"phase": "Pending", "conditions": [said]}, **msgspec.to_builtins(spec))
        assert built.plan().status.message.startswith(f"{PENDING}: NotEnough: too little: queue default is")

    def test_a_group_that_was_let_in_does_not_care_for_its_queue(self):
        assert len(pods(self.waiting("Inqueue", queue="gone").queue("default").plan())) == 4
