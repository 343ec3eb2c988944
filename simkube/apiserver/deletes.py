"""Deleting objects: preconditions, grace, finalizers, propagation."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject, View
from paddlejob.kube import resource as resources
from paddlejob.kube.errors import ApiError
from simkube import virtual_loop
from simkube.apiserver import refusals
from simkube.apiserver.request import Backend, Request
from simkube.apiserver.rules.bodies import is_released
from simkube.apiserver.store import Record

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Preconditions(View, frozen=True):
    """Preconditions of a delete."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(View, frozen=True):
    """How an object is to be deleted."""

    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    preconditions: Preconditions = Preconditions()


def options_of(request: Request) -> DeleteOptions:
    """Read the options from a request's body and query.

    Raises ApiError (400) when they do not decode.
    """
    try:
        options = msgspec.json.decode(request.body or b"{}", type=DeleteOptions)
    except msgspec.DecodeError as error:
        raise refusals.bad_request(f"DeleteOptions: {error}") from error
    changes: dict[str, Any] = {}
    if request.query.get("gracePeriodSeconds", "").isdecimal():
        changes["grace_period_seconds"] = int(request.query["gracePeriodSeconds"])
    if request.query.get("propagationPolicy"):
        changes["propagation_policy"] = request.query["propagationPolicy"]
    return msgspec.structs.replace(options, **changes)


class Deleter:
    """Deletes objects, immediately or in steps."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._store = backend.store

    def delete(self, request: Request, options: DeleteOptions) -> tuple[Record, bool]:
        """Delete an object or begin to; return it and whether it is gone.

        Raises ApiError: 404, 409 if a precondition fails, any error of an admission hook.
        """
        current = self._store.get(request.kind, request.namespace, request.name)
        _check_preconditions(current, options.preconditions)
        self._backend.admit(request, None, current.body)
        if request.dry_run:
            return current, False
        if request.resource == resources.NAMESPACES:
            return self._begin_namespace(current), False
        metadata = self._with_finalizers(current.metadata, options)
        if request.kind.graceful:
            metadata = self._with_grace(metadata, current.body, options)
        elif metadata.get("finalizers"):
            metadata = self._marked(metadata, 0)
        return self._settle(current, metadata)

    def _settle(self, current: Record, metadata: JsonObject) -> tuple[Record, bool]:
        """Store the mark of deletion, and take the object away when nothing holds it."""
        kind, body = current.type, {**current.body, "metadata": metadata}
        record = current
        if metadata != current.metadata:
            record = self._store.put(kind, body)
        held = metadata.get("finalizers") or (metadata.get("deletionTimestamp") and not is_released(metadata))
        if held:
            return record, False
        return self._store.remove(kind, record.body), True

    def _begin_namespace(self, current: Record) -> Record:
        if current.metadata.get("deletionTimestamp"):
            return current
        metadata = {**current.metadata, "deletionTimestamp": self._backend.timestamp()}
        status = {**current.body.get("status", {}), "phase": "Terminating"}
        return self._store.put(current.type, {**current.body, "metadata": metadata, "status": status})

    def _with_finalizers(self, metadata: JsonObject, options: DeleteOptions) -> JsonObject:
        """Record the propagation policy for the garbage collector."""
        current = metadata.get("finalizers") or []
        added = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(options.propagation_policy, [])
        if not options.propagation_policy:
            return metadata
        finalizers = [name for name in current if name not in {FOREGROUND, ORPHAN}] + added
        if finalizers == current:
            return metadata
        changed = {**metadata, "finalizers": finalizers}
        if not finalizers:
            del changed["finalizers"]
        return changed

    def _with_grace(self, metadata: JsonObject, pod: JsonObject, options: DeleteOptions) -> JsonObject:
        """Return a pod's metadata with the grace that a delete leaves it; a later one can only shorten it."""
        if not metadata.get("deletionTimestamp"):
            return self._marked(metadata, _grace_seconds(pod, options))
        left, asked = metadata.get("deletionGracePeriodSeconds"), options.grace_period_seconds
        if not left or asked is None or asked >= left:
            return metadata
        deadline = datetime.fromisoformat(metadata["deletionTimestamp"]) + timedelta(seconds=asked - left)
        now = self._backend.now()
        if deadline < now:
            deadline, asked = now, min(asked, 1)
        shown = virtual_loop.timestamp(deadline)
        return {**metadata, "deletionTimestamp": shown, "deletionGracePeriodSeconds": asked}

    def _marked(self, metadata: JsonObject, grace_seconds: int) -> JsonObject:
        if metadata.get("deletionTimestamp"):
            return metadata
        marked = {
            **metadata,
            "deletionTimestamp": self._backend.timestamp(seconds_from_now=grace_seconds),
            "deletionGracePeriodSeconds": grace_seconds,
        }
        if metadata.get("generation"):
            marked["generation"] = metadata["generation"] + 1
        return marked


def _grace_seconds(pod: JsonObject, options: DeleteOptions) -> int:
    """Return how long a pod has: none when no node runs it, or it has ended."""
    unbound = not pod["spec"].get("nodeName")
    ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    if unbound or ended:
        return 0
    asked = options.grace_period_seconds
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds", 0)
    return 1 if asked < 0 else int(asked)


def _check_preconditions(current: Record, preconditions: Preconditions) -> None:
    uid, version = preconditions.uid, preconditions.resource_version
    if uid is not None and uid != current.uid:
        raise _precondition_failed(
            current,
            f"the UID in the precondition ({uid}) does not match the UID in record ({current.uid}). "
            "The object might have been deleted and then recreated",
        )
    actual = current.metadata["resourceVersion"]
    if version is not None and version != actual:
        raise _precondition_failed(
            current,
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in "
            f"record ({actual}). The object might have been modified",
        )


def _precondition_failed(current: Record, why: str) -> ApiError:
    kind, name = current.type.resource.kind, current.name
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return refusals.refusal(409, "Conflict", message, name=name, kind=kind)
