"""Lists: selectors, pages, and the versions that a reader may ask for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from paddlejob.kube.errors import ApiError
from simkube.apiserver import refusals, selector
from simkube.apiserver.request import Request
from simkube.apiserver.store import Record, Store


class _Continue(msgspec.Struct, frozen=True):
    """A continue token: the last key that was sent, and the version of the list."""

    rv: int
    """-1 continues with the current state."""
    start: str
    v: str = "meta.k8s.io/v1"


class Page(msgspec.Struct, frozen=True):
    """A part of a list."""

    records: list[Record]
    version: int
    token: str = ""
    remaining: int | None = None


def list_page(store: Store, request: Request) -> Page:
    """Return the answer to a list request.

    Raises ApiError: 400 for a bad query, 410 when the version or token is too old, 504 when it is too new.
    """
    query = request.query
    limit = _number(query, "limit")
    token = _decoded(query["continue"]) if query.get("continue") else None
    version = _version(store, query, limit, token)
    table = store.table(request.kind)
    try:
        objects = table.objects if version is None else table.at(version)
    except ApiError as error:
        raise _expired(error, token) from error
    selected = _selected(request, objects, token.start if token else "")
    shown = store.version if version is None else version
    if not limit or len(selected) <= limit or query.get("resourceVersion") == "0":
        return Page(selected, shown)
    page, rest = selected[:limit], selected[limit:]
    unselective = not query.get("labelSelector") and not query.get("fieldSelector")
    following = _encoded(_Continue(shown, page[-1].key))
    return Page(page, shown, following, len(rest) if unselective else None)


def encode_page(request: Request, page: Page) -> bytes:
    """Return a page as the API server writes it; items of built-in kinds come without apiVersion and kind."""
    resource = request.resource
    metadata: dict[str, object] = {"resourceVersion": str(page.version)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    items = (
        [record.encoded() for record in page.records]
        if request.kind.custom
        else [record.encoded_item() for record in page.records]
    )
    return b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        msgspec.json.encode(metadata),
        b",".join(items),
    )


def _selected(request: Request, objects: Mapping[str, Record], after: str) -> list[Record]:
    query, namespace = request.query, request.namespace
    matches = selector.select(
        query.get("labelSelector", ""), query.get("fieldSelector", ""), request.kind.fields
    )
    prefix = f"{namespace}/" if namespace else ""
    return [
        objects[key]
        for key in sorted(objects)
        if key.startswith(prefix) and key > after and (matches is None or matches(objects[key].body))
    ]


def _version(store: Store, query: Mapping[str, str], limit: int, token: _Continue | None) -> int | None:
    """Return the requested version, None for the current one."""
    if token is not None:
        return None if token.rv == -1 else token.rv
    text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if match and not text:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes = [refusals.forbidden_value("resourceVersionMatch", why)]
        raise refusals.invalid("ListOptions", "meta.k8s.io", "", causes)
    if text and not text.isdecimal():
        raise refusals.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}"')
    asked = int(text or "0")
    if asked > store.version:
        raise refusals.version_too_large(asked, store.version)
    exact = match == "Exact" or (asked and limit and not match)
    return asked if exact else None


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not text.isdecimal():
        raise refusals.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _encoded(token: _Continue) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _decoded(text: str) -> _Continue:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=_Continue)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise refusals.bad_request(f"invalid continue token: continue key is not valid: {error}") from error


def _expired(error: ApiError, token: _Continue | None) -> ApiError:
    if token is None:
        return error
    return refusals.expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new "
        "list without the continue parameter."
    )
