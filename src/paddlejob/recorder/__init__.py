"""Reports the progress of a training program from inside its interpreter, without changes to its code.

It runs in the user's Python (3.8 or newer), so it imports only the standard library.
`site/sitecustomize.py`, on PYTHONPATH, starts it. `hooks` counts steps and reads losses after Paddle is
imported, and `sender` sends the latest state to the operator or to the file in PADDLEJOB_PROGRESS_FILE. A
program can also report its own progress:

    from paddlejob.recorder import report
    report(step=120, total=500, loss=0.31)

In a pod this import works even without the package paddlejob. Any error in the recorder turns it off with one
line on stderr, and training continues.
"""

from __future__ import annotations

from . import hooks, stacks
from .progress import Progress
from .sender import Sender, rank

__all__ = ["report", "start"]

_progress = Progress()
_sender = Sender(_progress)


def start() -> None:
    """Start counting steps when Paddle is imported; called by sitecustomize."""
    with _sender.guard():
        stacks.prepare(rank())
    hooks.install(_progress, _sender)


def report(
    step: int | None = None,
    *,
    total: int | None = None,
    epoch: int | None = None,
    loss: float | None = None,
    phase: str | None = None,
) -> None:
    """Report progress; it overrides the counted steps. Does nothing if the recorder has no destination."""
    with _sender.guard():
        _progress.set_reported(step=step, total=total, epoch=epoch, loss=loss, phase=phase)
        _sender.wake()
