"""Reports to the operator over TLS, at the pace that its answers ask for. Without it, training goes on."""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any
from urllib.parse import urlsplit

from . import stacks

REPORT_URL = "PADDLEJOB_REPORT_URL"
PATH = "/v1/report"
TIMEOUT_SECONDS = 5.0
EXIT_SECONDS = 2.0
"""How long the end of a program may wait for its last report."""
LONGEST_SECONDS = 300.0
ADDRESSES_TRIED = 4
"""Only the leader of several operators listens, but a connection may go to any of them."""
MOST_BYTES = 65536


class OperatorSink:
    """Posts reports; the directory has the operator's certificate and a token that the kubelet renews."""

    exit_seconds = EXIT_SECONDS

    def __init__(self, url: str, directory: str) -> None:
        self._url = urlsplit(url)
        self._directory = directory
        self._connection: Any = None
        self._context: Any = None
        self._failures = 0
        # One of our own: a program that has seeded Python's must see the same numbers with the recorder.
        self._random = random.Random()  # noqa: S311  (spreads reports, guards nothing)

    def send(self, report: dict[str, Any]) -> float:
        """Post a report; return the seconds until the next, which are more after every failure in a row."""
        try:
            answer = self._post(report)
            if answer.get("stacks"):
                answer = self._post({**report, "stacks": stacks.dump()})
            pause = max(1.0, min(LONGEST_SECONDS, float(answer["nextSeconds"])))
            self._failures = 0
        except Exception:
            # Nobody is there, or nobody who understands; that is no reason to stop for good.
            self.close()
            self._failures += 1
            pause = min(LONGEST_SECONDS, 2.0 ** min(self._failures, 10))
        # Ranks that began together do not report together.
        return pause * self._random.uniform(0.8, 1.2)

    def _post(self, report: dict[str, Any]) -> dict[str, Any]:
        with open(os.path.join(self._directory, "token"), encoding="ascii") as file:
            token = file.read().strip()
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        response = self._exchange(json.dumps(report).encode(), headers)
        text = response.read(MOST_BYTES)
        if response.status not in (200, 429):
            raise ValueError(response.status)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _exchange(self, body: bytes, headers: dict[str, str]) -> Any:
        if self._connection is not None:
            try:
                return self._request(body, headers)
            except OSError:
                # An idle connection may be closed at any time, which says nothing about the operator.
                self.close()
        self._connect()
        return self._request(body, headers)

    def _request(self, body: bytes, headers: dict[str, str]) -> Any:
        self._connection.request("POST", self._url.path.rstrip("/") + PATH, body, headers)
        return self._connection.getresponse()

    def _connect(self) -> None:
        from http.client import HTTPSConnection  # noqa: PLC0415  (most Pythons of a pod never report)

        for left in reversed(range(ADDRESSES_TRIED)):
            try:
                self._connection = HTTPSConnection(
                    self._url.hostname or "", self._url.port, timeout=TIMEOUT_SECONDS, context=self._tls()
                )
                self._connection.connect()
            except ConnectionRefusedError:
                if not left:
                    raise
                time.sleep(0.1)
            else:
                return

    def _tls(self) -> Any:
        import ssl  # noqa: PLC0415

        if self._context is None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # This one certificate is trusted and no other: whoever has its key is the operator, by any name.
            self._context.check_hostname = False
            self._context.load_verify_locations(os.path.join(self._directory, "ca.crt"))
        return self._context

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
