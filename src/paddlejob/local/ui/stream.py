"""Output streams whose reader may leave, as with `| head` or a closed terminal, without ending the run."""

from __future__ import annotations

import os
from typing import Any


class Stream:
    """A stream that goes to /dev/null after its first error: the job is worth more than its output."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        """Write, if anybody still reads."""
        try:
            self._stream.write(data)
        except OSError:
            self._abandon()
        return len(data)

    def flush(self) -> None:
        """Flush, if anybody still reads."""
        try:
            self._stream.flush()
        except OSError:
            self._abandon()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _abandon(self) -> None:
        """Redirect the descriptor to /dev/null, also for what Python still has in its buffer."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
