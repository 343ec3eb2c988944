"""Decodes responses of the API server into typed objects and exceptions."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from paddlejob.api import meta
from paddlejob.kube import decoding, errors, transport

T = TypeVar("T")


class Written(meta.View, frozen=True):
    """The metadata of a written object; far cheaper to decode than the whole object.

    Decodes at any nesting depth of the rest of the object.
    """

    metadata: meta.ObjectMeta = meta.ObjectMeta()


class ListMeta(meta.View, frozen=True):
    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")
    """Empty on the last page."""


class ListOf(msgspec.Struct, Generic[T], frozen=True):
    """One page of objects."""

    metadata: ListMeta
    items: tuple[T, ...]


class _ListBody(msgspec.Struct, Generic[T], frozen=True):
    """A list as the server sends it; Go encodes an empty list as null."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = None


def decode(body: bytes, as_type: type[T]) -> T:
    """Return the object in a response.

    Raises UndecodableError if the bytes are not valid JSON, do not match the type, or are nested too deeply.
    """
    decoder = _decoder(as_type)
    try:
        return decoding.decode(decoder, body) if as_type is Written else decoder.decode(body)
    except decoding.DECODE_ERRORS as error:
        raise _undecodable(body, as_type.__name__, error) from error


def decode_list(body: bytes, item_type: type[T]) -> ListOf[T]:
    """Return the page of objects in a response.

    Raises UndecodableError as `decode` does. Use `msgspec.Raw` as the item type to decode the items one by
    one with `decoding.decode`, which accepts deeply nested items.
    """
    decoder: msgspec.json.Decoder[_ListBody[T]] = _decoder(_ListBody[item_type])  # type: ignore[valid-type]
    try:
        page = decoding.decode(decoder, body) if item_type is msgspec.Raw else decoder.decode(body)
    except decoding.DECODE_ERRORS as error:
        raise _undecodable(body, f"list of {item_type.__name__}", error) from error
    return ListOf(page.metadata, page.items or ())


def error_from(response: transport.Response) -> errors.ApiError:
    """Return the exception for an error response, even if its body is not a Status."""
    try:
        status = _decoder(errors.Status).decode(response.body)
    except decoding.DECODE_ERRORS:
        # From a proxy or a load balancer, not from the API server.
        status = errors.Status(message=_excerpt(response.body))
    # Prefer the HTTP status code, which proxies see too.
    status = msgspec.structs.replace(status, code=response.status)
    return errors.api_error(status, retry_after_seconds=_retry_after_seconds(response))


async def error_from_stream(stream: transport.Stream) -> errors.ApiError:
    """Read the rest of an error response and return the exception for it."""
    body = bytearray()
    async for chunk in stream.chunks():
        body += chunk
        if len(body) > _STATUS_SIZE_LIMIT:
            break
    return error_from(transport.Response(stream.status, bytes(body), stream.headers))


_STATUS_SIZE_LIMIT = 1 << 20
_EXCERPT_SIZE = 200
_MAX_NUMBER_LENGTH = 15


_decoders: dict[Any, Any] = {}


def _decoder(as_type: type[T]) -> msgspec.json.Decoder[T]:
    """Return the cached decoder for a type; creating one costs more than decoding a pod."""
    decoder: msgspec.json.Decoder[T] | None = _decoders.get(as_type)
    if decoder is None:
        decoder = _decoders[as_type] = msgspec.json.Decoder(as_type)
    return decoder


def _retry_after_seconds(response: transport.Response) -> float | None:
    """Return the Retry-After seconds; ignore the date form, which API servers do not send."""
    value = response.headers.get("retry-after", "").strip()
    return float(value) if value.isdecimal() and len(value) <= _MAX_NUMBER_LENGTH else None


def _undecodable(body: bytes, wanted: str, error: Exception) -> errors.UndecodableError:
    detail = f"{error}" if isinstance(error, msgspec.ValidationError) else f"{error}: {_excerpt(body)}"
    return errors.UndecodableError(f"the API server's response is not a valid {wanted}: {detail}")


def _excerpt(body: bytes) -> str:
    text = body[:_EXCERPT_SIZE].decode("utf-8", "replace").strip()
    return text if len(body) <= _EXCERPT_SIZE else f"{text}..."
