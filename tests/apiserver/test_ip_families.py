"""The services of a job on clusters with IPv6: their names lead to IPv4 addresses wherever there are any."""

from __future__ import annotations

import pytest

from devcluster import ControlPlane
from paddlejob.api.v1 import Role
from paddlejob.core.pod_set import Replica
from paddlejob.core.render import render_service
from simkube.build import job, snapshot

RANGES = {
    "IPv6 first": ("fd00:1::/112,10.96.0.0/16", ["IPv6", "IPv4"]),
    "IPv6 alone": ("fd00:1::/112", ["IPv6"]),
}


@pytest.mark.parametrize(("ranges", "families"), RANGES.values(), ids=RANGES.keys())
def test_a_service_has_all_families_of_the_cluster(ranges, families):
    arguments = (f"--service-cluster-ip-range={ranges}", "--advertise-address=fd00:9::1")
    service = render_service(snapshot(job().worker(2)).context(), Replica(Role.WORKER, 0))
    del service["metadata"]["ownerReferences"]
    with ControlPlane.start(("etcd", "kube-apiserver"), extra_args={"kube-apiserver": arguments}) as plane:
        made = plane.request("POST", "/api/v1/namespaces/default/services", service)
    assert made["spec"]["ipFamilies"] == families
