"""Console output: the trainer's lines unchanged, the server's and our own with a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
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
        """Print a message of `paddlejob`."""
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
    """Writes a process's output to its log as it arrives, and complete lines to the console.

    If the log cannot be written, the output is still read, and the process continues.
    """

    def __init__(
        self, path: Path, show: Callable[[bytes], None], header: str, warn: Callable[[str], None]
    ) -> None:
        self._path = path
        self._show = show
        self._warn = warn
        self._line = b""
        self._stream: RawIOBase | None = None
        with self._drop_broken_log():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = path.open("ab", buffering=0)
        self._log(header.encode())

    def write(self, chunk: bytes) -> None:
        """Write a chunk of output."""
        self._log(chunk)
        *lines, self._line = (self._line + chunk).split(b"\n")
        for line in lines:
            self._show(line + b"\n")

    def close(self) -> None:
        """Show an unterminated last line, and close the log."""
        if self._line:
            self._show(self._line + b"\n")
        if self._stream is not None:
            with self._drop_broken_log():
                self._stream.close()

    def _log(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        with self._drop_broken_log():
            # A write to a disk that is almost full may be short.
            while rest and self._stream is not None:
                rest = rest[self._stream.write(rest) or 0 :]

    @contextmanager
    def _drop_broken_log(self) -> Iterator[None]:
        """Warn once about a log that cannot be written, and continue without it."""
        try:
            yield
        except OSError as error:
            stream, self._stream = self._stream, None
            if stream is not None:
                with suppress(OSError):
                    stream.close()
            self._warn(f"cannot write {self._path}: {error.strerror}; training continues without this log")
