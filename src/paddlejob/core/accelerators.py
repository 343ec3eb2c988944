"""Which of the resources that a container asks for are accelerators.

It decides whether a collective pod is told to use gloo. Told so beside an accelerator, it trains on the wrong
device or not at all; not told on a CPU, it fails when its program first calls a peer. There is no list of all
accelerators: every vendor has a name of its own, every way to share a card adds some, and next year there are
others. What else clusters extend themselves with is a short and stable list, mostly networks. So a resource
with a domain is an accelerator unless it is known to be something else.
"""

from __future__ import annotations

import re

from paddlejob.api.v1 import RoleSpec

_ACCELERATOR = re.compile(r"[gxp]pu|(?<!i)npu|(?<!u)tpu|[dg]cu|mlu|cuda|ascend|accelerator")
"""What the name of an accelerator may have in it, whatever else there is; inputs and outputs are none."""

_OTHER_DOMAINS = (
    "devices.kubevirt.io",
    "mellanox.com",
    "networking.gke.io",
    "openshift.io",
    "smarter-devices",
    "squat.ai",
    "vpc.amazonaws.com",
)
"""Who names only networks, or devices of the host such as /dev/fuse."""

_OTHER_WORDS = frozenset(
    {
        *("rdma", "erdma", "roce", "hca", "ib", "infiniband", "sriov", "vf", "nic", "nics", "hostdev", "efa"),
        *("eni", "eip", "ip", "eth", "net", "netdevice", "network", "tun", "vhost", "bandwidth"),
        *("kvm", "fuse", "fpga", "qat", "sgx", "dsa", "iaa", "dlb", "tpm", "disk", "storage", "license"),
    }
)
"""Words in the names of network cards, addresses, other devices and things that are merely counted."""

_DEVICE_CLASS = "deviceclass.resource.kubernetes.io"
"""Names the classes of dynamic resource allocation, which cards are what they are for."""


def accelerators(role_spec: RoleSpec) -> frozenset[str]:
    """Return the names of the accelerator resources that the training container asks for."""
    containers = (role_spec.template.get("spec") or {}).get("containers") or [{}]
    resources = containers[0].get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    named = {name for name, amount in asked.items() if str(amount) != "0" and is_accelerator(name)}
    claims = {f"claim/{claim.get('name', '')}" for claim in resources.get("claims") or ()}
    return frozenset(named | claims)


def is_accelerator(resource: str) -> bool:
    """Tell whether a resource of that name is one to compute with."""
    domain, slash, kind = resource.lower().rpartition("/")
    if not slash:
        return False
    if _ACCELERATOR.search(kind) or domain == _DEVICE_CLASS:
        return True
    if domain.split(".")[-2:] == ["kubernetes", "io"] or domain.startswith(_OTHER_DOMAINS):
        return False
    return _OTHER_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", f"{domain} {kind}"))
