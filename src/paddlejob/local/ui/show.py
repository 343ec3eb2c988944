"""Passes on to an output what the pods of a run write."""

from __future__ import annotations

from paddlejob.local.store.logs import Follower
from paddlejob.local.ui.output import Output

LOOK_SECONDS = 0.2
ROUNDS_AT_A_TIME = 32


def show_new_lines(follower: Follower, output: Output) -> None:
    """Show what is there; of a flood so much at a time that the view still moves."""
    for _ in range(ROUNDS_AT_A_TIME):
        pieces = list(follower.poll(may_skip=output.may_skip))
        for lines in pieces:
            output.on_log(lines)
        if not pieces:
            break
    output.tick()


def show_rest(follower: Follower, output: Output) -> None:
    """Show everything that is left, once nobody writes any more."""
    if output.may_skip:
        show_new_lines(follower, output)
    for lines in follower.rest():
        output.on_log(lines)
