"""Answers are the same however their bytes are cut, and what is no HTTP is said to be none."""

from __future__ import annotations

import gzip
import random

import pytest

from paddlejob.kube.http_message import AnswerReader, HttpError, header_lines, read_head, request_bytes

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n"
ZIPPED = b"Content-Encoding: gzip\r\n"
PACKED = gzip.compress(b"abc" * 100)


def read(data, *, cut=(), closed=False, **options):
    """Feed bytes, cut at some positions; return the reader and the body."""
    reader, body, begin = AnswerReader(**options), [], 0
    for end in (*cut, len(data)):
        body += reader.feed(data[begin:end])
        begin = end
    if closed:
        reader.close()
    return reader, b"".join(body)


ANSWERS = {
    "a length": (OK + b"Content-Length: 3\r\n\r\nabc", b"abc"),
    "no body": (OK + b"Content-Length: 0\r\n\r\n", b""),
    "a code without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", b"a"),
    "chunks": (
        CHUNKED + b"\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
        b"abc0123456789",
    ),
    "chunks with line ends in them": (
        CHUNKED + b"\r\n4\r\n\r\n\r\n\r\n0\r\n\r\n",
        b"\r\n\r\n",
    ),
    "chunks with extensions and trailers": (
        OK + b"Transfer-Encoding: Chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nExpires: never\r\n\r\n",
        b"x",
    ),
    "an answer before the answer": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na",
        b"a",
    ),
    "gzip": (
        OK + ZIPPED + b"Content-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
        b"abc" * 100,
    ),
    "gzip in chunks": (
        OK
        + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
        % (len(PACKED), PACKED),
        b"abc" * 100,
    ),
    "gzip of nothing": (OK + ZIPPED + b"Content-Length: 0\r\n\r\n", b""),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_whole_however_it_is_cut(name):
    data, body = ANSWERS[name]
    assert read(data)[1] == body
    for position in range(1, len(data)):
        reader, read_body = read(data, cut=[position])
        assert (reader.done, read_body) == (True, body)
    rng = random.Random(name)
    for _ in range(100):
        cut = sorted(rng.sample(range(len(data)), rng.randint(1, len(data) - 1)))
        assert read(data, cut=cut)[1] == body


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_cut_off_is_not_taken_for_whole(name):
    data, _ = ANSWERS[name]
    for length in range(len(data)):
        reader, _ = read(data[:length])
        assert not reader.done
        with pytest.raises(HttpError, match="middle of an answer"):
            reader.close()


def test_a_body_may_end_with_the_connection():
    reader, body = read(OK + b"\r\nabc", closed=True)
    assert (reader.done, body) == (True, b"abc")
    with pytest.raises(HttpError, match="middle of an answer"):
        read(OK + ZIPPED + b"\r\n" + PACKED[:-1], closed=True)


def test_a_tunnel_has_no_body():
    assert read(b"HTTP/1.1 200 Connection established\r\n\r\n", tunnel=True)[0].done
    assert not read(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 1\r\n\r\n", tunnel=True)[0].done


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"hello\r\n\r\n", "the answer is no HTTP but begins with b'hello"),
        (b"\x15\x03\x01", "no HTTP"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 OK\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "'2x0' is no number"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "another protocol"),
        (OK + b"no colon\r\n\r\n", "'no colon' is no header"),
        (OK + b" folded: x\r\n\r\n", "is no header"),
        (OK + b"Content-Length: -3\r\n\r\n", "'-3' is no number"),
        (OK + b"Content-Length: 3, 3\r\n\r\n", "'3, 3' is no number"),
        (OK + b"Content-Length: \xb2\r\n\r\n", "is no number"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "only 'chunked' is known"),
        (CHUNKED + b"\r\nxyz\r\n", "'xyz' is no number"),
        (CHUNKED + b"\r\n-1\r\n", "'-1' is no number"),
        (CHUNKED + b"\r\n1\r\nab\r\n", "longer than it said"),
        (CHUNKED + b"\r\n" + b"1" * 5000, "longer than 4096 bytes"),
        (OK + b"A: " + b"x" * 300_000, "longer than 262144 bytes"),
        (OK + ZIPPED + b"Content-Length: 3\r\n\r\nabc", "not gzip"),
        (OK + ZIPPED + b"Content-Length: 9\r\n\r\n" + PACKED[:9], "gzip of a body is cut"),
    ],
)
def test_what_is_no_answer(data, sentence):
    with pytest.raises(HttpError, match=sentence):
        read(data)


def test_bytes_after_an_answer_end_the_connection_and_not_the_answer():
    reader, body = read(OK + b"Content-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n")
    assert (reader.done, body, reader.leaves_connection) == (True, b"a", False)


def test_heads():
    head = read_head(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  3 \r\nWarning: a\r\nWARNING: b")
    assert (head.status, head.reason) == (429, "Too Many Requests")
    assert head.headers == {"retry-after": "3", "warning": "a, b"}


@pytest.mark.parametrize(
    ("head", "persistent"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", False),
    ],
)
def test_whether_a_connection_may_be_used_again(head, persistent):
    assert read_head(head).persistent is persistent
    assert not read(OK + b"Content-Length: 1\r\n\r\n")[0].leaves_connection
    assert read(OK + b"Content-Length: 1\r\n\r\na")[0].leaves_connection


def test_requests():
    headers = header_lines([("Host", "kube.test"), ("A", "b c")])
    assert (
        request_bytes("GET", "/api?a=b", headers)
        == b"GET /api?a=b HTTP/1.1\r\nHost: kube.test\r\nA: b c\r\n\r\n"
    )
    assert request_bytes("POST", "/", "", b"{}") == b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    assert request_bytes("POST", "/", "", b"") == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("target", ["/a b", "/a\r\nHost: x", "/\u00e9", "/a\x00"])
def test_a_target_cannot_smuggle_anything(target):
    with pytest.raises(HttpError, match="cannot be asked for"):
        request_bytes("GET", target, "")


def test_a_header_cannot_smuggle_anything():
    with pytest.raises(HttpError, match="the value of Authorization has a line break"):
        header_lines([("Authorization", "Bearer a\r\nImpersonate-User: admin")])
    with pytest.raises(HttpError, match="cannot stand in a header"):
        request_bytes("GET", "/", header_lines([("Authorization", "Bearer \u4e2d")]))
