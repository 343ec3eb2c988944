"""Reports how far a training program is, from inside its own interpreter and without a change of its code.

It runs in the user's Python (3.8 or newer), so it imports nothing but the standard library.
`site/sitecustomize.py`, on PYTHONPATH, starts it; `hooks` counts steps and reads losses once Paddle is
imported, `sender` writes the newest state to the file that PADDLEJOB_PROGRESS_FILE names. A program may also
say itself how far it is:

    from paddlejob.recorder import report
    report(step=120, total=500, loss=0.31)

In a pod the module has this name whether or not the package paddlejob is installed. Any error in here turns
it off with one line on stderr, and training goes on.
"""

from __future__ import annotations

from . import hooks, stacks
from .progress import Progress
from .sender import Sender, rank

__all__ = ["report", "start"]

_progress = Progress()
_sender = Sender(_progress)


def start() -> None:
    """Count steps from the moment Paddle is imported; called by sitecustomize."""
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
    """Say how far training is; this wins over what was counted. Where nobody listens it does nothing."""
    with _sender.guard():
        _progress.say(step=step, total=total, epoch=epoch, loss=loss, phase=phase)
        _sender.wake()
