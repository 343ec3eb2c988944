"""Which of a container's resources are accelerators, of which type, and whether its Paddle can use them.

Accelerators decide whether a collective pod uses gloo. With gloo and an accelerator, it trains on the wrong
device or not at all. Without gloo on a CPU, it fails at the first call of a peer.

A list of all accelerators is not possible: every vendor and every way to share a card has its own names.
Other extended resources are few and stable, mostly networks. So a resource with a domain counts as an
accelerator unless it is known to be something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from paddlejob.api.defaulting import EffectiveSpec, command_line
from paddlejob.api.meta import JsonObject
from paddlejob.api.v1 import Mode, Role, RoleSpec
from paddlejob.core.pod_set import training_container

_ACCELERATOR = re.compile(r"[gxp]pu|(?<!i)npu|(?<!u)tpu|[dg]cu|mlu|cuda|ascend|accelerator")
"""Parts of names that make a resource an accelerator."""

_PROGRAM = re.compile(r"\bpython[\d.]*(?: -[a-zA-Z]+)* [^-\s]\S*\.py\b")
_STARTERS = re.compile(r"launch|fleetrun|spawn|mpirun")
"""Parts of commands that may start one process per card."""

_OTHER_DOMAINS = (
    "devices.kubevirt.io",
    "mellanox.com",
    "networking.gke.io",
    "openshift.io",
    "smarter-devices",
    "squat.ai",
    "vpc.amazonaws.com",
)
"""Domains of networks, and of host devices such as /dev/fuse."""

_OTHER_WORDS = frozenset(
    {
        *("rdma", "erdma", "roce", "hca", "ib", "infiniband", "sriov", "vf", "nic", "nics", "hostdev", "efa"),
        *("eni", "eip", "ip", "eth", "net", "netdevice", "network", "tun", "vhost", "bandwidth"),
        *("kvm", "fuse", "fpga", "qat", "sgx", "dsa", "iaa", "dlb", "tpm", "disk", "storage", "license"),
    }
)
"""Words in the names of network cards, addresses, other devices and licenses."""

_DEVICE_CLASS = "deviceclass.resource.kubernetes.io"
"""Domain of the classes of dynamic resource allocation, which are mostly used for accelerators."""


CUSTOM_DEVICES: Mapping[str, str] = {
    "huawei.com/ascend*": "npu",
    "huawei.com/npu*": "npu",
    "cambricon.com/*": "mlu",
    "enflame.com/*": "gcu",
    "iluvatar.com/*": "iluvatar_gpu",
    "metax-tech.com/*": "metax_gpu",
}
"""Resources in lower case, and the type of device that a plug-in of Paddle registers for them."""

_DEVICE_TYPES: Mapping[str, str] = {**CUSTOM_DEVICES, "*xpu*": "xpu", "*kunlun*": "xpu"}
"""All other accelerators are GPUs: Paddle for DCUs is a build of Paddle for GPUs."""

_CARD = re.compile(r"/(?:gpu|xpu|npu|dcu|gcu|ppu|mlu\d*|ascend-?\d+\w*)$")
"""Resources that are counted in whole cards, not in parts of a card or in bytes."""
_SEVERAL = re.compile(r"[2-9]|[1-9]\d{1,3}")


class _Family(NamedTuple):
    """Accelerators that one build of Paddle supports, and the messages of other builds."""

    resource: re.Pattern[str]
    words: re.Pattern[str]
    package: str


_FAMILIES = (
    _Family(
        # GPUs of other vendors are used through plug-ins, by a Paddle without CUDA.
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
"""Messages of Paddle 2.6 and 3.3, PaddleClas, PaddleDetection and PaddleOCR, and of our recorder."""


def accelerators(role_spec: RoleSpec) -> frozenset[str]:
    """Return the names of the accelerator resources that the training container requests."""
    resources = _mapping(training_container(role_spec).get("resources"))
    claims = {f"claim/{claim.get('name', '')}" for claim in resources.get("claims") or ()}
    return frozenset(_amounts(role_spec).keys() | claims)


def device_type(role_spec: RoleSpec) -> str:
    """Return Paddle's type of the devices that the training container requests."""
    asked = [name.lower() for name in sorted(accelerators(role_spec))]
    if not asked:
        return "cpu"
    types = (kind for name in asked for given, kind in _DEVICE_TYPES.items() if fnmatchcase(name, given))
    return next(types, "gpu")


def several_cards(role_spec: RoleSpec) -> str:
    """Return the number and name of the cards if the training container requests several of a kind."""
    held = _amounts(role_spec)
    several = (
        f"{held[name]} x {name}"
        for name in sorted(held)
        if _CARD.search(name.lower()) and _SEVERAL.fullmatch(str(held[name]))
    )
    return next(several, "")


def card_count(role_spec: RoleSpec) -> int:
    """Return the number of cards of the training container, 1 if it is unknown."""
    held = {name: str(amount) for name, amount in _amounts(role_spec).items() if _CARD.search(name.lower())}
    return max((int(amount) for amount in held.values() if amount.isdecimal()), default=1)


def unlaunched_cards(spec: EffectiveSpec) -> str:
    """Return a warning if a collective worker has several cards, and its command starts one process.

    An image may start the launcher in its entrypoint or in a script, so only a plain Python program counts.
    """
    if spec.mode not in (Mode.COLLECTIVE, Mode.SINGLE):
        return ""
    worker = dict(spec.roles).get(Role.WORKER)
    cards = several_cards(worker) if worker else ""
    if not worker or not cards or not _starts_program_directly(worker):
        return ""
    return (
        f"each worker requests {cards}, but its command starts one process, and a process of Paddle trains "
        "on one card; start the program with python -m paddle.distributed.launch"
    )


def _starts_program_directly(role_spec: RoleSpec) -> bool:
    """Return whether the command starts a Python program, and nothing that starts several processes."""
    container = training_container(role_spec)
    text = command_line(container)
    return bool(container.get("command")) and bool(_PROGRAM.search(text)) and not _STARTERS.search(text)


def idle_accelerators(role_spec: RoleSpec, log: str) -> str:
    """Return a message if the log shows that the pod's Paddle cannot use its accelerators.

    A program that never selects a device prints nothing, so its idle accelerators are not found.
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
    """Return a part of a template, empty if it has the wrong type (it may not be validated yet)."""
    return value if isinstance(value, dict) else {}


def is_accelerator(resource: str) -> bool:
    """Return whether a resource of this name is an accelerator."""
    domain, slash, kind = resource.lower().rpartition("/")
    if not slash:
        return False
    if _ACCELERATOR.search(kind) or domain == _DEVICE_CLASS:
        return True
    if domain.split(".")[-2:] == ["kubernetes", "io"] or domain.startswith(_OTHER_DOMAINS):
        return False
    return _OTHER_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", f"{domain} {kind}"))
