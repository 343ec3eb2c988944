"""Stores the records of jobs in ConfigMaps, and finds the records to delete."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container
from datetime import datetime, timedelta

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import LONG_AGO, ObjectKey
from paddlejob.api.v1 import PaddleJob
from paddlejob.history.compose import Track
from paddlejob.history.record import (
    RECORD_KEY,
    StoredRecord,
    Summary,
    manifest,
    object_key,
    outline_of_record,
    summary_of_object,
    unpack,
)
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS
from paddlejob.operator.settings import HistorySettings

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Time between two attempts to list the records."""
UNDELETABLE_SECONDS = 600.0
"""Time before another attempt to delete a record that could not be deleted."""
PAGE_SIZE = 20
MAX_LOADED = 10
"""Maximum number of summaries that are loaded for a namespace, as a multiple of `per_namespace`."""


class RecordStore:
    """Reads, writes and deletes the ConfigMaps of records, and keeps their summaries."""

    def __init__(
        self, client: Client, settings: HistorySettings, *, namespace: str, now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._settings = settings
        self._namespace = namespace
        self._now = now
        self.summaries: dict[ObjectKey, Summary] = {}
        """Records by the key of their ConfigMap. Their UIDs are not trusted: any user can write them."""
        self._undeletable: dict[ObjectKey, float] = {}
        """Records that could not be deleted, with the time of the next attempt."""

    async def load(self) -> None:
        """List the existing records, and retry until that succeeds."""
        while True:
            try:
                self.summaries = await self._list()
            except errors.KubeError as error:
                log.warning("cannot list the records of jobs, will be retried: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _list(self) -> dict[ObjectKey, Summary]:
        """Return the summaries without texts; pages shrink until a response is within its limit.

        Any user can create records. Of a namespace with far too many, the others are loaded by the next
        operator, after this one has deleted what it loaded.
        """
        found: dict[ObjectKey, Summary] = {}
        counts: Counter[str] = Counter()
        token, limit = "", PAGE_SIZE
        while True:
            try:
                page = await self._client.list(
                    CONFIG_MAPS,
                    self._namespace or None,
                    label_selector=names.LABEL_HISTORY,
                    limit=limit,
                    continue_token=token,
                    type=msgspec.Raw,
                )
            except errors.ResponseTooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            for summary in filter(None, map(outline_of_record, page.items)):
                if counts[summary.namespace] < MAX_LOADED * self._settings.per_namespace:
                    counts[summary.namespace] += 1
                    found[object_key(summary)] = summary
            token = page.metadata.continue_token
            if not token:
                return found

    def find(self, job: PaddleJob) -> Summary | None:
        """Return the summary of a job's record."""
        found = self.summaries.get(object_key(Summary(job.name, job.metadata.namespace, job.metadata.uid)))
        return found if found and found.uid == job.metadata.uid else None

    def update_summary(self, summary: Summary) -> None:
        """Update the summary of an existing record whose ConfigMap is not written."""
        if (key := object_key(summary)) in self.summaries:
            self.summaries[key] = summary

    async def save(self, track: Track) -> None:
        """Merge a track into the record of its job. Raises KubeError."""
        key = object_key(track.summary)
        try:
            found = await self._client.get(CONFIG_MAPS, key.namespace, key.name, type=StoredRecord)
        except errors.NotFoundError:
            summary = track.summary
            await self._client.create(CONFIG_MAPS, key.namespace, manifest(track.merge_into(None)))
            self.summaries[key] = summary
            return
        known = summary_of_object(found.metadata)
        if known is None or known.uid != track.summary.uid:
            obstacle = f"ConfigMap {key.name} exists and is not its record"
            log.warning("%s is not recorded: %s", track.job.metadata.key, obstacle)
            # The summary would start a new track for the deleted job on every pass.
            self.summaries.pop(key, None)
            return
        record = track.merge_into(unpack(found.binary_data.get(RECORD_KEY, b"")))
        body = manifest(record, found.metadata.resource_version)
        await self._client.replace(CONFIG_MAPS, key.namespace, key.name, body)
        self.summaries[key] = record.summary

    def surplus(self, in_use: Container[str]) -> list[Summary]:
        """Return records that are too old or too many, oldest first, except for jobs `in_use` (UIDs)."""
        clock = asyncio.get_running_loop().time()
        kept = [each for key, each in self.summaries.items() if self._undeletable.get(key, clock) <= clock]
        oldest_first = sorted(
            (each for each in kept if each.is_final and each.uid not in in_use),
            key=lambda each: (each.ended or each.created or LONG_AGO, each.uid),
        )
        counts = Counter(each.namespace for each in kept)
        expiry = self._now() - timedelta(days=self._settings.days)
        found = []
        for each in oldest_first:
            expired = each.ended is not None and each.ended < expiry
            if expired or counts[each.namespace] > self._settings.per_namespace:
                counts[each.namespace] -= 1
                found.append(each)
        return found

    async def remove(self, key: ObjectKey) -> None:
        """Delete a record."""
        try:
            await self._client.delete(CONFIG_MAPS, key.namespace, key.name)
        except errors.NotFoundError:
            pass
        except errors.KubeError as error:
            log.warning("cannot delete the record %s, will be retried: %s", key, error)
            self._undeletable[key] = asyncio.get_running_loop().time() + UNDELETABLE_SECONDS
            return
        self.summaries.pop(key, None)
        self._undeletable.pop(key, None)
