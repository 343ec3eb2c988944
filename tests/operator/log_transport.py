"""The operator's transport where tests count the logs that it reads, or refuse them."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext


class Logs:
    """A transport that counts the logs that are read, and may refuse them."""

    def __init__(self, transport) -> None:
        self._transport = transport
        self._paths: list[str] = []
        self.code = 200
        self.refused = ""
        """Only the logs of pods of this job are answered so, if it is given."""
        self.hangs = False
        """Whether no log is answered."""

    @property
    def asked(self) -> int:
        return len(self._paths)

    def asked_for(self, job: str) -> int:
        """Return how many logs of pods of jobs with this prefix were asked for."""
        return sum(f"/pods/{job}" in path for path in self._paths)

    def __getattr__(self, name: str):
        return getattr(self._transport, name)

    def stream(self, path: str, **options):
        is_log = path.endswith("/log")
        self._paths += [path] if is_log else []
        if is_log and self.hangs:
            return Silent()
        return (
            nullcontext(Refused(self.code))
            if is_log and self.code != 200 and self.refused in path
            else self._transport.stream(path, **options)
        )


class Refused:
    """What a server answers that does not give a log."""

    headers: dict[str, str] = {}

    def __init__(self, code: int) -> None:
        self.status = code

    async def chunks(self):
        yield b"no"


class Silent:
    """A request without an answer, as of a node that is cut off."""

    async def __aenter__(self):
        await asyncio.Event().wait()

    async def __aexit__(self, *_) -> None:
        """Nothing was opened."""
