"""Which of the resources that a container asks for are accelerators, and whether its Paddle can use them.

The first decides whether a collective pod uses gloo. With gloo beside an accelerator, it trains on the wrong
device or not at all; without gloo on a CPU, it fails when its program first calls a peer. There is no
list of all accelerators: every vendor has a name of its own, every way to share a card adds some, and next
year there are others. What else clusters extend themselves with is a short and stable list, mostly networks.
So a resource with a domain is an accelerator unless it is known to be something else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import RoleSpec
from paddlejob.core.pod_set import training_container

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


class _Family(NamedTuple):
    """Accelerators that one build of Paddle uses, and what other builds print when they are asked to."""

    resource: re.Pattern[str]
    words: re.Pattern[str]
    package: str


_FAMILIES = (
    _Family(
        # Not every GPU: those of other vendors are used through plug-ins, by a Paddle without CUDA.
        re.compile(
            r"^nvidia\.com/|cuda|^(?:aliyun|baidu|koordinator|tke\.cloud\.tencent|volcano)\.\w+/\w*gpu"
        ),
        re.compile(
            r"its Paddle \S+ was built for the CPU only|paddle is not compiled with (?:CUDA|GPU)"
            r"|AssertionError: Not compiled with CUDA"
            r"|CPU version PaddlePaddle|CPU-only PaddlePaddle|paddlepaddle cpu version",
            re.IGNORECASE,
        ),
        "paddlepaddle-gpu",
    ),
    _Family(
        re.compile(r"/xpu|kunlun"),
        re.compile(r"paddle is not compiled with XPU", re.IGNORECASE),
        "paddlepaddle-xpu",
    ),
)
"""The words of Paddle 2.6 and 3.3, PaddleClas, PaddleDetection and PaddleOCR, and of our recorder."""


def accelerators(role_spec: RoleSpec) -> frozenset[str]:
    """Return the names of the accelerator resources that the training container asks for."""
    resources = _mapping(training_container(role_spec).get("resources"))
    claims = {f"claim/{claim.get('name', '')}" for claim in resources.get("claims") or ()}
    return frozenset(_amounts(role_spec).keys() | claims)


def left_idle(role_spec: RoleSpec, log: str) -> str:
    """Return that a pod holds accelerators which its Paddle cannot use, if its log says so.

    A program that never asks for a device prints nothing about it, and then nothing is known.
    """
    held = _amounts(role_spec)
    found = (
        f"holds {held[name]} x {name}, but its Paddle was built for the CPU only; "
        f"use an image with {family.package}"
        for name in sorted(held)
        for family in _FAMILIES
        if family.resource.search(name.lower()) and family.words.search(log)
    )
    return next(found, "")


def _amounts(role_spec: RoleSpec) -> JsonObject:
    resources = _mapping(training_container(role_spec).get("resources"))
    asked = {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
    return {name: amount for name, amount in asked.items() if str(amount) != "0" and is_accelerator(name)}


def _mapping(value: object) -> JsonObject:
    """Return a part of a template, which may be anything as long as nobody has validated it."""
    return value if isinstance(value, dict) else {}


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
