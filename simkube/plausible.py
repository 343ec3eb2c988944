"""Checks that a snapshot could exist, so that no test depends on an impossible state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from paddlejob.api.defaulting import effective
from paddlejob.api.pod import Pod
from paddlejob.core.network import network_of
from paddlejob.core.snapshot import Snapshot

Rule = Callable[[Snapshot], Iterator[str]]


def check_plausible(snapshot: Snapshot) -> None:
    """Fail with a sentence for everything that no API server and no kubelet would show.

    Raises: AssertionError.
    """
    problems = [problem for rule in RULES for problem in rule(snapshot)]
    assert not problems, "; ".join(problems)


def _names_are_unique(snapshot: Snapshot) -> Iterator[str]:
    for kind, objects in (("pod", snapshot.pods), ("service", snapshot.services)):
        names = Counter(each.metadata.name for each in objects)
        yield from (f"{count} {kind}s are named {name}" for name, count in names.items() if count > 1)


def _pods_are_the_jobs(snapshot: Snapshot) -> Iterator[str]:
    job = snapshot.job.metadata
    for pod in snapshot.pods:
        owners = [owner.uid for owner in pod.metadata.owner_references if owner.controller]
        if owners != [job.uid]:
            yield f"pod {pod.metadata.name} is controlled by {owners}, the job is {job.uid}"
        if pod.metadata.namespace != job.namespace:
            yield f"pod {pod.metadata.name} is in namespace {pod.metadata.namespace}"


def _addresses_are_unique(snapshot: Snapshot) -> Iterator[str]:
    if network_of(effective(snapshot.job.spec).intranet).has_host_ports:
        return  # pods of one node share its address
    live = (pod.status.pod_ip for pod in snapshot.pods if pod.status.phase in ("Pending", "Running"))
    yield from _repeated(filter(None, live), "pods have the address")


def _phases_match_containers(snapshot: Snapshot) -> Iterator[str]:
    for pod in snapshot.pods:
        states = [status.state for status in pod.status.container_statuses]
        ended = [state.terminated for state in states]
        if pod.status.phase == "Succeeded" and any(end is None or end.exit_code for end in ended):
            yield f"pod {pod.metadata.name} succeeded, but not all of its containers did"
        if pod.status.phase == "Running" and not states:
            yield f"pod {pod.metadata.name} runs without a container"
        if pod.status.phase == "Failed" and states and not _can_have_failed(pod):
            yield f"pod {pod.metadata.name} failed, but none of its containers did"


def _can_have_failed(pod: Pod) -> bool:
    ended = [status.state.terminated for status in pod.status.container_statuses]
    return bool(pod.status.reason) or any(end is not None and end.exit_code for end in ended)


def _repeated(values: Iterable[str], what: str) -> Iterator[str]:
    yield from (f"{count} {what} {value}" for value, count in Counter(values).items() if count > 1)


RULES: tuple[Rule, ...] = (
    _names_are_unique,
    _pods_are_the_jobs,
    _addresses_are_unique,
    _phases_match_containers,
)
