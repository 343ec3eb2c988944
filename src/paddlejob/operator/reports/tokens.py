"""Finds the pod that a service-account token is bound to, by a TokenReview every few minutes.

A token that cannot belong to one of our pods is refused without a review. The number of reviews is limited,
in total and by source address, so that forged tokens do not load the API server.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import msgspec

from paddlejob.api import names
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.kube.resource import Resource
from paddlejob.training.report_rate import Bucket

Key = TypeVar("Key")
Value = TypeVar("Value")

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)

VALID_SECONDS = 300.0
"""Validity of a review. The token of a deleted pod is refused earlier, since the pod is unknown."""
REFUSED_SECONDS = 60.0
MAX_BYTES = 16384
MAX_VALID, MAX_REFUSED = 50_000, 1_000
REVIEWS_PER_SECOND, REVIEWS_AT_ONCE = 40.0, 80.0
MAX_SOURCES = 10_000
SOURCE_REVIEWS_PER_SECOND, SOURCE_REVIEWS_AT_ONCE = 0.1, 16.0
"""Budget of a source address, not of a pod, since a forged token can name any pod. Pods may share an
address, so a confirmed token does not count, but only once a minute for each pod."""
FREE_SECONDS = 60.0
_ACCOUNT = "system:serviceaccount:"
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"


class RefusedError(Exception):
    """The token is not bound to a pod of a running job."""


class BusyError(Exception):
    """The token could not be reviewed now; the client must retry."""


class PodIdentity(msgspec.Struct, frozen=True):
    """An authenticated pod."""

    namespace: str
    name: str
    uid: str


class _PodClaim(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Binding(msgspec.Struct, frozen=True):
    namespace: str
    pod: _PodClaim


class _Claims(msgspec.Struct, frozen=True):
    aud: tuple[str, ...] | str
    exp: float
    binding: _Binding = msgspec.field(name="kubernetes.io")


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class TokenReviewer:
    """Reviews tokens and caches the results."""

    def __init__(
        self, client: Client, *, is_known: Callable[[PodIdentity], bool], now: Callable[[], datetime]
    ) -> None:
        """`is_known` returns whether a pod may report."""
        self._client = client
        self._is_known = is_known
        self._now = now
        self._valid: OrderedDict[bytes, tuple[PodIdentity, float]] = OrderedDict()
        self._refused: OrderedDict[bytes, float] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[PodIdentity]] = {}
        self._budget = Bucket(REVIEWS_PER_SECOND, REVIEWS_AT_ONCE)
        self._source_budgets: OrderedDict[str, Bucket] = OrderedDict()
        self._confirmed: OrderedDict[str, float] = OrderedDict()
        """Time of the last confirmed token, by pod UID."""

    async def identify(self, token: str, source: str) -> PodIdentity:
        """Return the pod that a token from a source address belongs to. Raises RefusedError or BusyError."""
        claims = _claims(token)
        claimed = PodIdentity(claims.binding.namespace, claims.binding.pod.name, claims.binding.pod.uid)
        if not self._is_known(claimed):
            raise RefusedError("not a pod of a running PaddleJob")
        key, clock = hashlib.sha256(token.encode()).digest(), asyncio.get_running_loop().time()
        identity, until = self._valid.get(key, (None, 0.0))
        if identity is not None and clock < until:
            return identity
        if clock < self._refused.get(key, 0.0):
            raise RefusedError("token refused by the API server")
        # Processes of a pod share a token and may report concurrently.
        task = self._asking.get(key)
        if task is None:
            budget = self._budget_of(source)
            if not budget.take(clock):
                raise BusyError
            if not self._budget.take(clock):
                budget.give_back()
                raise BusyError
            task = self._asking[key] = asyncio.create_task(self._ask(key, token, claims, claimed))
            task.add_done_callback(lambda done: self._review_done(key, budget, done))
        return await asyncio.shield(task)

    def _budget_of(self, source: str) -> Bucket:
        known = self._source_budgets.get(source)
        budget = known or Bucket(SOURCE_REVIEWS_PER_SECOND, SOURCE_REVIEWS_AT_ONCE)
        _keep(self._source_budgets, source, budget, MAX_SOURCES)
        return budget

    def _review_done(self, key: bytes, budget: Bucket, done: asyncio.Task[PodIdentity]) -> None:
        del self._asking[key]
        # Retrieve the error here too, because the client may have disconnected.
        if not done.cancelled() and self._is_free(done):
            budget.give_back()

    def _is_free(self, done: asyncio.Task[PodIdentity]) -> bool:
        """Return whether a review does not count: it failed, or is the first of its pod for FREE_SECONDS."""
        if (error := done.exception()) is not None:
            return not isinstance(error, RefusedError)
        pod, clock = done.result(), asyncio.get_running_loop().time()
        before = self._confirmed.get(pod.uid, -math.inf)
        _keep(self._confirmed, pod.uid, clock, MAX_VALID)
        return clock - before >= FREE_SECONDS

    async def _ask(self, key: bytes, token: str, claims: _Claims, claimed: PodIdentity) -> PodIdentity:
        spec = {"token": token, "audiences": [names.RECORDER]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            review = await self._client.create(TOKEN_REVIEWS, None, body, type=_Review)
        except errors.KubeError as error:
            raise BusyError(str(error)) from error
        clock = asyncio.get_running_loop().time()
        if _identity(review.status) != claimed:
            _keep(self._refused, key, clock + REFUSED_SECONDS, MAX_REFUSED)
            raise RefusedError("token refused by the API server")
        left = claims.exp - self._now().timestamp()
        _keep(self._valid, key, (claimed, clock + min(VALID_SECONDS, left)), MAX_VALID)
        return claimed


def _keep(store: OrderedDict[Key, Value], key: Key, value: Value, most: int) -> None:
    store.pop(key, None)
    store[key] = value
    if len(store) > most:
        store.popitem(last=False)


def _identity(status: _ReviewStatus) -> PodIdentity | None:
    """Return the pod that a review confirms; the token must have our audience and be bound to a pod."""
    user = status.user
    account, pods, uids = user.username, user.extra.get(_POD_NAME), user.extra.get(_POD_UID)
    if not (status.authenticated and names.RECORDER in status.audiences and account.startswith(_ACCOUNT)):
        return None
    if not pods or not uids:
        return None
    return PodIdentity(account.removeprefix(_ACCOUNT).partition(":")[0], pods[0], uids[0])


def _claims(token: str) -> _Claims:
    """Return the unverified claims of a token. Raises RefusedError."""
    if len(token) > MAX_BYTES or token.count(".") != 2 or not token.isascii():
        raise RefusedError("not a service-account token")
    payload = token.split(".")[1]
    try:
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        claims = msgspec.json.decode(text, type=_Claims)
    except DECODE_ERRORS as error:
        raise RefusedError("not a service-account token bound to a pod") from error
    if names.RECORDER not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
        raise RefusedError(f"the token's audience is not {names.RECORDER}")
    return claims
