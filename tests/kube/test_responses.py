from __future__ import annotations

import msgspec
import pytest

from kube.scripted_transport import ScriptedStream, refusal
from paddlejob.kube import errors, responses
from paddlejob.kube.transport import Response

POD = b'{"kind":"Pod","metadata":{"name":"p","resourceVersion":"7"},"spec":{"new":true}}'


def test_the_narrow_view_keeps_the_metadata():
    written = responses.decode(POD, responses.Written)
    assert (written.metadata.name, written.metadata.resource_version) == ("p", "7")


def test_plain_json_keeps_everything():
    assert responses.decode(POD, dict)["spec"] == {"new": True}


def test_decoders_are_cached():
    assert responses._decoder(responses.Written) is responses._decoder(responses.Written)


def test_a_list_of_views():
    body = (
        b'{"metadata":{"resourceVersion":"9","continue":"tok","remainingItemCount":3},"items":[' + POD + b"]}"
    )
    page = responses.decode_list(body, responses.Written)
    assert [item.metadata.name for item in page.items] == ["p"]
    assert page.metadata == responses.ListMeta("9", "tok")


def test_an_empty_list_may_be_null():
    assert responses.decode_list(b'{"metadata":{},"items":null}', dict).items == ()


def test_raw_items_wait_for_their_own_decoding():
    page = responses.decode_list(b'{"items":[{"metadata":5},' + POD + b"]}", msgspec.Raw)
    assert bytes(page.items[1]) == POD


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"<html>hello", "<html>hello", id="a page of a proxy is quoted"),
        pytest.param(b'{"metadata":5}', r"\$.metadata", id="a wrong type is located"),
        pytest.param(b"", "truncated", id="nothing"),
    ],
)
def test_an_answer_that_does_not_decode(body, sentence):
    with pytest.raises(errors.UndecodableError, match=sentence):
        responses.decode(body, responses.Written)
    with pytest.raises(errors.UndecodableError, match="list of dict"):
        responses.decode_list(body, dict)


@pytest.mark.parametrize(
    ("response", "kind", "sentence"),
    [
        pytest.param(
            refusal(404, "NotFound", "no such pod"), errors.NotFoundError, "no such pod", id="a Status"
        ),
        pytest.param(
            Response(502, b"<html>bad gateway"), errors.ServerError, "<html>bad gateway", id="a page"
        ),
        pytest.param(Response(404, b'"text"'), errors.NotFoundError, '"text"', id="JSON that is no Status"),
        pytest.param(Response(403, b""), errors.ForbiddenError, "responded with 403", id="no body"),
        pytest.param(
            Response(409, b'{"code":200}'),
            errors.ConflictError,
            "responded with 409",
            id="the HTTP code counts",
        ),
        pytest.param(
            Response(500, b"x" * 5000), errors.ServerError, r"^x{200}\.\.\.$", id="a long page is cut"
        ),
    ],
)
def test_error_from(response, kind, sentence):
    error = responses.error_from(response)
    assert type(error) is kind
    with pytest.raises(kind, match=sentence):
        raise error


@pytest.mark.parametrize(
    ("header", "seconds"), [("3", 3.0), ("0", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), (None, None)]
)
def test_retry_after(header, seconds):
    assert responses.error_from(refusal(429, retry_after=header)).retry_after_seconds == seconds


async def test_a_refused_stream():
    body = refusal(410, "Expired", "too old").body
    error = await responses.error_from_stream(ScriptedStream(410, [body[:9], body[9:]], {"retry-after": "1"}))
    assert type(error) is errors.GoneError
    assert (error.reason, error.retry_after_seconds) == ("Expired", 1)


async def test_a_refused_stream_that_does_not_end_is_cut():
    endless = ScriptedStream(500, [b"x" * 65536] * 100, {})
    assert str(await responses.error_from_stream(endless)).startswith("xxx")
