"""Whether Paddle can use the addresses that the cluster gave a job's pods.

Paddle speaks IPv4 only: it splits endpoints at each colon, asks for IPv4 addresses of names, and listens on
IPv4 sockets. docs/ipv6.md tells what was tried. Where it is known beforehand that pods have IPv6 addresses,
they are called by name, which leads to the IPv4 address that they may have as well. The rest is here.
"""

from __future__ import annotations

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.core.classify import Roster
from paddlejob.core.standing import Standing
from paddlejob.core.topology import Site


def unreadable_address(site: Site, roster: Roster) -> str:
    """Return why a job must not start with the addresses it has, empty when it may.

    Started nevertheless, the workers of a job under `paddle.distributed.launch` would take themselves for one
    node each: all train alone, and the job completes as if nothing were wrong.
    """
    if site.uses_names or site.spec.rendezvous is not None or len(roster.wanted) == 1:
        return ""
    for member in roster.active():
        address = member.pod.status.pod_ip
        if ":" in address and not member.has_started:
            return (
                f"spec.intranet is {site.spec.intranet}, but pod {member.pod.metadata.name} has the IPv6 "
                f"address {address}, which PaddlePaddle cannot read; "
                "create the job anew with intranet: Service"
            )
    return ""


def noted(standing: Standing, roster: Roster) -> Standing:
    """Add what a person has to know about a job whose pods cannot reach each other through Paddle.

    The job is not refused: its program may do without peers, or bring a Paddle that can.
    """
    alone = next((pod for member in roster.active() if _lacks_ipv4(pod := member.pod)), None)
    if alone is None or len(roster.wanted) == 1:
        return standing
    note = (
        f"pod {alone.metadata.name} has only the IPv6 address {alone.status.pod_ip}, and PaddlePaddle (up to "
        "3.3) connects its processes over IPv4 alone; run the job where pods have IPv4 addresses too"
    )
    return msgspec.structs.replace(standing, message=f"{standing.message}; {note}")


def _lacks_ipv4(pod: Pod) -> bool:
    addresses = [address.ip for address in pod.status.pod_ips] or [pod.status.pod_ip]
    return bool(addresses[0]) and all(":" in address for address in addresses)
