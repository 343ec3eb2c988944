"""Decodes responses of the API server into typed objects and exceptions."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from paddlejob.api import meta
from paddlejob.kube import decoding, errors, transport

T = TypeVar("T")


class Written(meta.View, frozen=True):
    """The metadata of an object that was written; far cheaper to decode than the whole object.

    Decodes however deeply the rest of the object is nested.
    """

    metadata: meta.ObjectMeta = meta.ObjectMeta()


class ListMeta(meta.View, frozen=True):
    """The `metadata` of a list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")
    """Empty on the last page."""
    remaining_item_count: int | None = None


class ListOf(msgspec.Struct, Generic[T], frozen=True):
    """One page of objects."""

    metadata: ListMeta
    items: tuple[T, ...]


class _ListBody(msgspec.Struct, Generic[T], frozen=True):
    """A list as sent: Go writes an empty one as null."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = None


def decode(body: bytes, as_type: type[T]) -> T:
    """Return the object in a response.

    Raises UndecodableError when the bytes are not valid JSON, do not fit the type, or are nested too deeply.
    """
    decoder = _decoder(as_type)
    try:
        return decoding.decode(decoder, body) if as_type is Written else decoder.decode(body)
    except decoding.DECODE_ERRORS as error:
        raise _undecodable(body, as_type.__name__, error) from error


def decode_list(body: bytes, item_type: type[T]) -> ListOf[T]:
    """Return the page of objects in a response.

    Raises UndecodableError as `decode` does; list `msgspec.Raw` to decode the items one by one, with
    `decoding.decode`, which explains what becomes of an item that is nested too deeply.
    """
    decoder = _list_decoder(item_type)
    try:
        page = decoding.decode(decoder, body) if item_type is msgspec.Raw else decoder.decode(body)
    except decoding.DECODE_ERRORS as error:
        raise _undecodable(body, f"list of {item_type.__name__}", error) from error
    return ListOf(page.metadata, page.items or ())


def error_from(response: transport.Response) -> errors.ApiError:
    """Return the exception for an error response, even when its body is not a Status."""
    status = _status_in(response)
    return errors.api_error(status, retry_after_seconds=_retry_after_seconds(response))


async def error_from_stream(stream: transport.Stream) -> errors.ApiError:
    """Read the rest of a stream that was refused, and return the exception for it."""
    body = bytearray()
    async for chunk in stream.chunks():
        body += chunk
        if len(body) > _STATUS_SIZE_LIMIT:
            break
    return error_from(transport.Response(stream.status, bytes(body), stream.headers))


_STATUS_SIZE_LIMIT = 1 << 20
_EXCERPT_SIZE = 200
_LONGEST_NUMBER = 15


_decoders: dict[Any, Any] = {}


def _decoder(as_type: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder for a type; making one costs more than decoding a pod."""
    decoder: msgspec.json.Decoder[T] | None = _decoders.get(as_type)
    if decoder is None:
        decoder = _decoders[as_type] = msgspec.json.Decoder(as_type)
    return decoder


def _list_decoder(item_type: type[T]) -> msgspec.json.Decoder[_ListBody[T]]:
    return _decoder(_ListBody[item_type])  # type: ignore[valid-type]


def _status_in(response: transport.Response) -> errors.Status:
    try:
        status = _decoder(errors.Status).decode(response.body)
    except decoding.DECODE_ERRORS:
        # From a proxy or a load balancer, not from the API server.
        return errors.Status(code=response.status, message=_excerpt(response.body))
    # The HTTP code is the one that everybody between us and the server has seen.
    return msgspec.structs.replace(status, code=response.status)


def _retry_after_seconds(response: transport.Response) -> float | None:
    """Return the seconds of the header; its date form, which no API server sends, counts as absent."""
    value = response.headers.get("retry-after", "").strip()
    return float(value) if value.isdecimal() and len(value) <= _LONGEST_NUMBER else None


def _undecodable(body: bytes, wanted: str, error: Exception) -> errors.UndecodableError:
    detail = f"{error}" if isinstance(error, msgspec.ValidationError) else f"{error}: {_excerpt(body)}"
    return errors.UndecodableError(f"the API server's response is not a valid {wanted}: {detail}")


def _excerpt(body: bytes) -> str:
    text = body[:_EXCERPT_SIZE].decode("utf-8", "replace").strip()
    return text if len(body) <= _EXCERPT_SIZE else f"{text}..."
