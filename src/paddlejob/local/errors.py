"""The error for a run that cannot start."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(Exception):
    """The file, an option or this machine prevents the run. Each sentence names one thing to change."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences

    @classmethod
    def of(cls, sentences: Iterable[object]) -> InputError:
        """Return one error for several problems, such as field errors."""
        return cls(*(str(sentence) for sentence in sentences))
