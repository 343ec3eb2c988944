"""A small blocking client for the API server, with verified TLS, for setting up and inspecting clusters."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from devcluster.errors import DevclusterError


class ApiError(DevclusterError):
    """The API server answered with an error."""

    def __init__(self, code: int, method: str, path: str, answer: str) -> None:
        super().__init__(f"{method} {path} gave {code}: {answer.strip()}")
        self.code = code


class Client:
    """Requests to one server, in the name of a bearer token or of a client certificate."""

    def __init__(
        self,
        url: str,
        *,
        ca_file: Path,
        token: str | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._host, self._port = address.hostname, address.port
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        if certificate is not None:
            self._tls.load_cert_chain(*certificate)

    def text(self, path: str, *, timeout_seconds: float = 10.0) -> str:
        """GET a path and give its body as it is."""
        return self._exchange("GET", path, None, {}, timeout_seconds)

    def send(self, method: str, path: str, data: bytes, **headers: str) -> str:
        """Send a body as it is and give the answer as it is: JSON may be nested too deep to be read here."""
        return self._exchange(method, path, data, {"Content-Type": "application/json", **headers}, 60.0)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float = 10.0,
    ) -> Any:
        """Send a JSON body and give the JSON answer.

        Raises: ApiError for a status of 400 and above, OSError when the server cannot be reached or trusted.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": content_type}
        return json.loads(self._exchange(method, path, data, headers, timeout_seconds))

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str], timeout_seconds: float
    ) -> str:
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_seconds, context=self._tls
        )
        try:
            connection.request(method, path, body=data, headers={**self._headers, **headers})
            response = connection.getresponse()
            answer = response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, method, path, answer)
        return answer
