from __future__ import annotations

import random

import pytest

from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.rendezvous.peers import (
    Finished,
    JobShape,
    Peers,
    PodIdentity,
    Waiting,
    expected_trainers,
    resolve_peers,
)
from plainjob.pods import pod

A, B, C = pod("a", "10.0.0.9"), pod("b", "10.0.0.10"), pod("c", "10.0.0.100")
ME = PodIdentity("a", "10.0.0.9")


def names(peers: Peers) -> list[str]:
    return [peer.name for peer in peers.peers]


@pytest.mark.parametrize("seed", range(10))
def test_every_pod_sees_one_order_whatever_the_list_says(seed):
    pods = [A, B, C]
    random.Random(seed).shuffle(pods)
    resolved = [resolve_peers(pods, 3, PodIdentity(name)) for name in "abc"]
    assert [peers.addresses for peers in resolved] == [("10.0.0.10", "10.0.0.100", "10.0.0.9")] * 3
    assert [peers.me for peers in resolved] == [2, 0, 1]


def test_addresses_are_sorted_as_text_as_the_guide_does():
    assert names(resolve_peers([C, B, A], 3, ME)) == ["b", "c", "a"]


def test_the_ipv4_address_of_a_pod_with_both_is_taken():
    pods = [pod("a", "fd00::9", second="10.0.0.9"), pod("b", "fd00::1", second="10.0.0.10")]
    peers = resolve_peers(pods, 2, PodIdentity(address="fd00::1"))
    assert (peers.addresses, peers.me) == (("10.0.0.10", "10.0.0.9"), 0)


@pytest.mark.parametrize("index", [None, 0])
def test_an_address_that_paddle_cannot_read_is_named(index):
    with pytest.raises(SettingsError, match="pod a has only the IPv6 address fd00::1, and PaddlePaddle"):
        resolve_peers([pod("a", "fd00::1", index=index)], 1, PodIdentity("a"))


def test_the_index_of_an_indexed_job_comes_before_addresses():
    pods = [pod("a", "10.0.0.9", index=2), pod("b", "10.0.0.10", index=0), pod("c", "10.0.0.100", index=1)]
    assert names(resolve_peers(pods, 3, ME)) == ["b", "c", "a"]


def test_a_pod_without_a_name_finds_itself_by_index():
    pods = [
        pod("a", "10.0.0.1", "Failed", index=1),
        pod("b", "10.0.0.1", index=0),
        pod("c", "10.0.0.2", index=1),
    ]
    assert resolve_peers(pods, 2, PodIdentity("node-7", "10.0.0.1", index=1)).me == 1


def test_a_pod_without_a_name_finds_itself_by_address():
    assert resolve_peers([A, B], 2, PodIdentity(address="10.0.0.10")).me == 0


@pytest.mark.parametrize(
    ("pods", "running", "missing"),
    [
        pytest.param(
            [A, B], 2, ["1 pod not created yet"], id="the start race: two of three listed, both running"
        ),
        pytest.param([A], 1, ["2 pods not created yet"], id="alone"),
        pytest.param([A, B, pod("c", phase="Pending")], 2, ["c (Pending)"], id="one is pending"),
        pytest.param(
            [A, B, pod("c", phase="Pending", waiting="ImagePullBackOff")],
            2,
            ["c (Pending: ImagePullBackOff)"],
            id="one cannot pull its image",
        ),
        pytest.param(
            [A, B, pod("c", phase="Pending", unscheduled="0/3 nodes are available")],
            2,
            ["c (Pending: 0/3 nodes are available)"],
            id="one finds no node",
        ),
        pytest.param([A, B, pod("c")], 2, ["c (Running: no address yet)"], id="one has no address"),
        pytest.param([A, B, pod("c", "10.0.0.3", "Failed")], 2, ["1 pod not created yet"], id="one failed"),
        pytest.param(
            [A, B, pod("c", "10.0.0.3", deleted=True)], 2, ["1 pod not created yet"], id="one is leaving"
        ),
        pytest.param(
            [A, B, pod("c", "10.0.0.3", job="old")], 2, ["1 pod not created yet"], id="an older job's pod"
        ),
        pytest.param(
            [A, B, C, pod("d", "10.0.0.4")], 4, ["the exit of 1 surplus pod (4 exist)"], id="one too many"
        ),
        pytest.param([B, C], 0, ["a (this pod, not in the list yet)"], id="the list is older than this pod"),
        pytest.param(
            [pod("a", "10.0.0.9", index=0), pod("b", "10.0.0.10", index=2)],
            2,
            ["index 1 (no such pod yet)"],
            id="an index without a pod",
        ),
        pytest.param(
            [pod("a", "10.0.0.1", index=0), pod("b", "10.0.0.2", index=1), pod("c", "10.0.0.3", index=1)],
            3,
            ["indexes 0 to 2 (there are [0, 1, 1])"],
            id="two pods of one index",
        ),
    ],
)
def test_waits_and_names_who_is_missing(pods, running, missing):
    assert resolve_peers(pods, 3, ME) == Waiting(running, tuple(missing))


def test_a_finished_sibling_is_not_waited_for():
    assert resolve_peers([A, B, pod("c", "10.0.0.3", "Succeeded")], 3, ME) == Finished("c", "job-1")


def test_two_pods_at_one_address_cannot_train():
    with pytest.raises(SettingsError, match="hostNetwork"):
        resolve_peers([A, pod("b", "10.0.0.9"), C], 3, ME)


@pytest.mark.parametrize(
    ("shape", "gradient_num", "expected"),
    [
        pytest.param(JobShape(3, 3), None, 3, id="the job says it"),
        pytest.param(JobShape(3, 3), 3, 3, id="job and variable agree"),
        pytest.param(JobShape(5, 3), None, 3, id="never more pods than completions"),
        pytest.param(JobShape(3, None), None, 3, id="a job without completions"),
        pytest.param(JobShape(None, 1), None, 1, id="parallelism is one by default"),
        pytest.param(None, 4, 4, id="the variable, where the job cannot be read"),
    ],
)
def test_how_many_trainers(shape, gradient_num, expected):
    assert expected_trainers(shape, gradient_num) == expected


@pytest.mark.parametrize(
    ("shape", "gradient_num", "message"),
    [
        pytest.param(
            JobShape(3, 3), 4, "CONF_PADDLE_GRADIENT_NUM is 4, but the Job runs 3 pods", id="contradiction"
        ),
        pytest.param(None, None, "CONF_PADDLE_GRADIENT_NUM is not set", id="nobody knows"),
    ],
)
def test_how_many_trainers_is_unclear(shape, gradient_num, message):
    with pytest.raises(SettingsError, match=message):
        expected_trainers(shape, gradient_num)
