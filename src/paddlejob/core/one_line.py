"""One line for status and events, of whatever a server, a scheduler or a program said in many.

`PhaseReason` and `Event` apply it to every message they are made with, so that no author has to think of it.
"""

from __future__ import annotations

MESSAGE_LENGTH = 1024
"""What a status and an event can hold."""


def one_line(text: str, limit: int = MESSAGE_LENGTH) -> str:
    """Collapse blanks and line breaks to single spaces, and keep the beginning of what is too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
