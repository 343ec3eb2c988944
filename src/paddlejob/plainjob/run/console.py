"""Console output: the trainer's lines as they are; the server's and our own with a prefix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


class Console:
    """The output of one pod: the trainer's to one stream, everything else to another."""

    def __init__(self, trainer: BinaryIO, others: BinaryIO, prefix: str = "") -> None:
        self._trainer = trainer
        self._others = others
        self._prefix = prefix.encode()
        self._broken: set[int] = set()

    def say(self, text: str) -> None:
        """Print a message of our own."""
        self._print(self._others, b"paddlejob: " + text.encode() + b"\n")

    def trainer_line(self, line: bytes) -> None:
        """Print a line of the trainer."""
        self._print(self._trainer, line)

    def server_line(self, line: bytes) -> None:
        """Print a line of the server."""
        self._print(self._others, b"server: " + line)

    def _print(self, stream: BinaryIO, line: bytes) -> None:
        if id(stream) in self._broken:
            return
        try:
            stream.write(self._prefix + line)
            stream.flush()
        except (OSError, ValueError):
            self._broken.add(id(stream))  # the reader is gone; the log files are still written


class LogTee:
    """Writes a process's output to its log as it arrives, and complete lines to the console."""

    def __init__(self, path: Path, show: Callable[[bytes], None], header: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.open("ab", buffering=0)
        self._show = show
        self._line = b""
        self._stream.write(header.encode())

    def write(self, chunk: bytes) -> None:
        """Write a chunk of output."""
        self._stream.write(chunk)
        *lines, self._line = (self._line + chunk).split(b"\n")
        for line in lines:
            self._show(line + b"\n")

    def close(self) -> None:
        """Show an unterminated last line, and close the log."""
        if self._line:
            self._show(self._line + b"\n")
        self._stream.close()
