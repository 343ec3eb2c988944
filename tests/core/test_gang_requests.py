"""A gang's room is what the scheduler will count."""

from __future__ import annotations

import pytest

from paddlejob.api.quantity import write_all
from paddlejob.core.gang.requests import gang_requests, pod_requests


def container(requests=None, limits=None, **fields):
    resources = {"requests": requests} if requests else {}
    resources |= {"limits": limits} if limits else {}
    return {"name": "c", "resources": resources, **fields}


def cpu(amount, **fields):
    return container({"cpu": amount}, **fields)


CASES = {
    "containers run side by side": ({"containers": [cpu("1"), cpu("500m")]}, {"cpu": "1500m"}),
    "a limit alone is a request": (
        {"containers": [container({"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": 4})]},
        {"cpu": "1", "nvidia.com/gpu": "4"},
    ),
    "a small init container is free": (
        {"containers": [cpu("2")], "initContainers": [cpu("1"), cpu("1")]},
        {"cpu": "2"},
    ),
    "a large init container counts instead": (
        {"containers": [cpu("2")], "initContainers": [cpu("1"), cpu("5")]},
        {"cpu": "5"},
    ),
    "each resource has its own peak": (
        {
            "containers": [container({"cpu": "4", "memory": "1Gi"})],
            "initContainers": [container({"cpu": "1", "memory": "8Gi"})],
        },
        {"cpu": "4", "memory": "8Gi"},
    ),
    "a sidecar counts beside the containers": (
        {"containers": [cpu("2")], "initContainers": [cpu("1", restartPolicy="Always")]},
        {"cpu": "3"},
    ),
    "an init container runs beside earlier sidecars only": (
        {
            "containers": [cpu("1")],
            "initContainers": [cpu("1", restartPolicy="Always"), cpu("5"), cpu("3", restartPolicy="Always")],
        },
        {"cpu": "6"},
    ),
    "the overhead comes on top": (
        {"containers": [cpu("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}},
        {"cpu": "1250m", "memory": "120Mi"},
    ),
    "amounts for the whole pod go first": (
        {"containers": [container({"cpu": "1", "memory": "1Gi"})], "resources": {"requests": {"cpu": "3"}}},
        {"cpu": "3", "memory": "1Gi"},
    ),
    "a limit for the whole pod is a request where no container asks": (
        {"containers": [cpu("1")], "resources": {"limits": {"cpu": "4", "memory": "2Gi"}}},
        {"cpu": "1", "memory": "2Gi"},
    ),
    "nobody asks for anything": ({"containers": [{"name": "c"}]}, {}),
    "an empty spec": ({}, {}),
}


@pytest.mark.parametrize(("spec", "expected"), CASES.values(), ids=CASES)
def test_one_pod(spec, expected):
    assert write_all(pod_requests(spec)) == expected


def test_a_gang_is_its_pods_together():
    server = {"containers": [container({"cpu": "500m", "memory": "1Gi"})]}
    worker = {"containers": [container({"cpu": "1", "memory": "1536Mi", "nvidia.com/gpu": "0"})]}
    assert gang_requests([(server, 2), (worker, 3)]) == {"cpu": "4", "memory": "6656Mi"}


def test_an_amount_that_is_none_is_told():
    with pytest.raises(ValueError, match="'much' is not a quantity"):
        gang_requests([({"containers": [cpu("much")]}, 1)])
