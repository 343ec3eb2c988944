"""Writes statuses as merge patches and checks that the API server stores every field.

An API server silently drops fields that its CustomResourceDefinition lacks. With an older definition the
operator would forget attempts and restarts, and repeat them forever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from paddlejob.api.crd.definition import CRD_NAME, dropped_status_fields, sample_status
from paddlejob.api.meta import JsonObject, ObjectKey, ObjectMeta, View
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.kube.resource import CUSTOM_RESOURCE_DEFINITIONS

log = logging.getLogger(__name__)

READ_SECONDS = 5.0
"""Timeout of one read of the definition."""
RETRY_SECONDS = 10.0
"""Interval between two reads of a definition that lacks fields."""
MAX_NAMED_FIELDS = 3


def status_patch(old: PaddleJobStatus, new: PaddleJobStatus) -> JsonObject:
    """Return a merge patch from one status to another, in which null removes a field at any depth."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    gone = dict.fromkeys(before.keys() - after.keys())
    changed = {field: value for field, value in after.items() if before.get(field) != value}
    return {**gone, **{field: _replace(before.get(field), value) for field, value in changed.items()}}


def _replace(old: Any, new: Any) -> Any:
    """Return a patch that removes all of the old value."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    gone = dict.fromkeys(old.keys() - new.keys())
    return {**gone, **{name: _replace(old.get(name), value) for name, value in new.items()}}


class DroppedFieldsError(errors.KubeError):
    """The API server has stored a status without some of its fields."""


class StoredStatus(View, frozen=True):
    """A job as the API server returns it after a write of its status."""

    metadata: ObjectMeta = ObjectMeta()
    status: msgspec.Raw = msgspec.Raw(b"{}")


class StatusSchema:
    """The status fields that the API server is known to drop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._dropped: tuple[str, ...] = ()
        self._doubtful: JsonObject = {}
        """Fields of a status that the API server may drop, as a patch."""

    def problems(self) -> list[str]:
        """Return one sentence with the dropped fields and the remedy, or an empty list."""
        if not self._dropped:
            return []
        named, more = ", ".join(self._dropped[:MAX_NAMED_FIELDS]), len(self._dropped) - MAX_NAMED_FIELDS
        fields = f"{named} and {more} more" if more > 0 else named
        remedy = "`paddlejob install --apply`, or `kubectl apply --server-side -f deploy/v1/crd.yaml`"
        return [
            f"CustomResourceDefinition {CRD_NAME} is too old and drops {fields}; apply the new one: {remedy}"
        ]

    async def wait_until_complete(self) -> None:
        """Wait until the definition has every status field.

        Also return if the definition cannot be read, as in a namespaced installation; `confirm` then checks.
        """
        while True:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    definition = await self._client.get(CUSTOM_RESOURCE_DEFINITIONS, None, CRD_NAME)
            except errors.NotFoundError:
                # No PaddleJobs at all, or Kubernetes before 1.16, which keeps unknown fields.
                log.info("there is no CustomResourceDefinition %s of apiextensions.k8s.io/v1", CRD_NAME)
            except (errors.KubeError, TimeoutError) as error:
                log.info("cannot read the CustomResourceDefinition %s: %s", CRD_NAME, error or "timeout")
                self._doubtful = sample_status()
            else:
                self._note(dropped_status_fields(definition))
            if not self._dropped:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def confirm(self, job: ObjectKey) -> None:
        """Raise DroppedFieldsError while a dry run on any job shows that doubtful fields are dropped."""
        if not self._doubtful:
            return
        try:
            written = await self._client.patch(
                PADDLE_JOBS,
                job.namespace,
                job.name,
                {"status": self._doubtful},
                subresource="status",
                dry_run=True,
                type=StoredStatus,
            )
        except (errors.BadRequestError, errors.ForbiddenError, errors.InvalidError) as error:
            # A webhook without dry-run support, or a policy that rejects the sample; writes are checked too.
            log.info("cannot check which fields of a status are stored: %s", error)
            self._note(())
        else:
            self._note(_dropped_fields(self._doubtful, written.status))
            if self._dropped:
                raise DroppedFieldsError
        self._doubtful = {}

    def check_write(self, patch: JsonObject, stored: msgspec.Raw) -> None:
        """Raise DroppedFieldsError if a status was stored without fields of the patch."""
        if dropped := _dropped_fields(patch, stored):
            self._doubtful = patch
            self._note(dropped)
            raise DroppedFieldsError

    def _note(self, dropped: tuple[str, ...]) -> None:
        before, self._dropped = self._dropped, dropped
        if dropped and dropped != before:
            log.error("not reconciling: %s", self.problems()[0])


def _dropped_fields(patch: JsonObject, stored: msgspec.Raw) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(stored)
    except DECODE_ERRORS:
        return ()
    return tuple(_missing("status", patch, found))


def _missing(path: str, patch: JsonObject, found: JsonObject) -> Iterator[str]:
    """Yield the paths of values that were not stored; null removes a value."""
    for name, value in patch.items():
        if value is not None and name not in found:
            yield f"{path}.{name}"
        elif isinstance(value, dict):
            yield from _missing(f"{path}.{name}", value, found[name])
