from __future__ import annotations

import msgspec
import pytest

from simkube.build import job, snapshot
from simkube.plausible import check_plausible


def plausible():
    return snapshot(job().worker(2).spec(intranet="Service")).services().pods_running().build()


def changed(snapshot, **fields):
    """Return the snapshot with its second pod changed."""
    first, second = snapshot.pods
    return msgspec.structs.replace(snapshot, pods=(first, msgspec.structs.replace(second, **fields)))


def metadata(snapshot, **fields):
    return msgspec.structs.replace(snapshot.pods[1].metadata, **fields)


def status(snapshot, **fields):
    return msgspec.structs.replace(snapshot.pods[1].status, **fields)


IMPOSSIBLE = {
    "two pods of one name": (
        lambda of: changed(of, metadata=metadata(of, name="demo-worker-0")),
        "2 pods are named demo-worker-0",
    ),
    "two services of one name": (
        lambda of: msgspec.structs.replace(of, services=(of.services[0],) * 2),
        "2 services are named demo-worker-0",
    ),
    "a pod of another job": (
        lambda of: changed(of, metadata=metadata(of, owner_references=())),
        "is controlled by",
    ),
    "a pod elsewhere": (
        lambda of: changed(of, metadata=metadata(of, namespace="other")),
        "is in namespace other",
    ),
    "an address twice": (
        lambda of: changed(of, status=status(of, pod_ip="10.0.2.1")),
        "2 pods have the address 10.0.2.1",
    ),
    "a success without an end": (
        lambda of: changed(of, status=status(of, phase="Succeeded")),
        "not all of its containers did",
    ),
    "a failure without an end": (
        lambda of: changed(of, status=status(of, phase="Failed")),
        "none of its containers did",
    ),
    "a pod that runs without containers": (
        lambda of: changed(of, status=status(of, container_statuses=())),
        "runs without a container",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_state_that_cannot_occur_is_refused(spoil, words):
    with pytest.raises(AssertionError, match=words):
        check_plausible(spoil(plausible()))


def test_pods_on_the_network_of_one_node_share_its_address():
    check_plausible(msgspec.structs.replace(plausible(), job=job().worker(2).spec(intranet="Host").build()))
    of = snapshot(job().worker(2).spec(intranet="Host")).pods_running().build()
    check_plausible(changed(of, status=status(of, pod_ip=of.pods[0].status.pod_ip)))
