"""Sends reports to the operator over TLS, at the interval in its responses."""

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
"""Maximum time that a program waits for its last report when it exits."""
MAX_SECONDS = 300.0
CONNECT_TRIES = 4
"""Only the leader of several operators listens, but a connection may reach any of them."""
MAX_BYTES = 65536


class OperatorSink:
    """Posts reports; `directory` has the operator's certificate and a token that the kubelet renews."""

    exit_seconds = EXIT_SECONDS

    def __init__(self, url: str, directory: str) -> None:
        self._url = urlsplit(url)
        self._directory = directory
        self._connection: Any = None
        self._context: Any = None
        self._failures = 0
        # Not the global generator: the recorder must not change the numbers of a seeded program.
        self._random = random.Random()  # noqa: S311  (jitter, not security)

    def send(self, report: dict[str, Any]) -> float:
        """Post a report and return the seconds until the next one, which grow with consecutive failures."""
        try:
            answer = self._post(report)
            if answer.get("stacks"):
                answer = self._post({**report, "stacks": stacks.dump()})
            pause = max(1.0, min(MAX_SECONDS, float(answer["nextSeconds"])))
            self._failures = 0
        except Exception:
            # The operator is unreachable or too old; keep retrying.
            self.close()
            self._failures += 1
            pause = min(MAX_SECONDS, 2.0 ** min(self._failures, 10))
        # Spread the reports of ranks that started at the same time.
        return pause * self._random.uniform(0.8, 1.2)

    def _post(self, report: dict[str, Any]) -> dict[str, Any]:
        with open(os.path.join(self._directory, "token"), encoding="ascii") as file:
            token = file.read().strip()
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        response = self._exchange(json.dumps(report).encode(), headers)
        text = response.read(MAX_BYTES)
        if response.status not in (200, 429):
            raise ValueError(response.status)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _exchange(self, body: bytes, headers: dict[str, str]) -> Any:
        if self._connection is not None:
            try:
                return self._request(body, headers)
            except OSError:
                # The server may close an idle connection at any time; connect again.
                self.close()
        self._connect()
        return self._request(body, headers)

    def _request(self, body: bytes, headers: dict[str, str]) -> Any:
        self._connection.request("POST", self._url.path.rstrip("/") + PATH, body, headers)
        return self._connection.getresponse()

    def _connect(self) -> None:
        from http.client import HTTPSConnection  # noqa: PLC0415  (most Python processes never report)

        for left in reversed(range(CONNECT_TRIES)):
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
            # Only the operator's certificate is trusted, so its host name does not matter.
            self._context.check_hostname = False
            self._context.load_verify_locations(os.path.join(self._directory, "ca.crt"))
        return self._context

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
