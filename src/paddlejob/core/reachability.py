"""Whether Paddle can use the addresses that the cluster gave a job's pods.

Paddle speaks IPv4 only: it splits endpoints at each colon, asks for IPv4 addresses of names, and listens on
IPv4 sockets. docs/ipv6.md tells what was tried. Where it is known beforehand that pods have IPv6 addresses,
they are called by name, which leads to the IPv4 address that they may have as well. The rest is here.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.core.phase_reason import PhaseReason
from paddlejob.core.pod_set import PodSet
from paddlejob.core.topology import JobContext


def unreadable_address(context: JobContext, pod_set: PodSet) -> str:
    """Return why a job must not start with the addresses it has, empty when it may.

    Started nevertheless, the workers of a job under `paddle.distributed.launch` would take themselves for one
    node each: all train alone, and the job completes as if nothing were wrong.
    """
    if context.uses_names or context.spec.rendezvous is not None or len(pod_set.wanted) == 1:
        return ""
    for member in pod_set.active:
        address = member.pod.status.pod_ip
        if ":" in address and not member.has_started:
            return (
                f"spec.intranet is {context.spec.intranet}, but pod {member.pod.metadata.name} has the IPv6 "
                f"address {address}, which PaddlePaddle cannot read; "
                "create the job anew with intranet: Service"
            )
    return ""


def with_ipv6_warning(phase_reason: PhaseReason, pod_set: PodSet) -> PhaseReason:
    """Add what a person has to know about a job whose pods cannot reach each other through Paddle.

    The job is not refused: its program may do without peers, or bring a Paddle that can.
    """
    alone = next((pod for member in pod_set.active if _lacks_ipv4(pod := member.pod)), None)
    if alone is None or len(pod_set.wanted) == 1:
        return phase_reason
    note = (
        f"pod {alone.metadata.name} has only the IPv6 address {alone.status.pod_ip}, and PaddlePaddle (up to "
        "3.3) connects its processes over IPv4 alone; run the job where pods have IPv4 addresses too"
    )
    return msgspec.structs.replace(phase_reason, message=f"{phase_reason.message}; {note}")


def _lacks_ipv4(pod: Pod) -> bool:
    addresses = [address.ip for address in pod.status.pod_ips] or [pod.status.pod_ip]
    return bool(addresses[0]) and all(":" in address for address in addresses)
