"""The error of a run that cannot start."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(Exception):
    """The file, an option or this machine does not allow the run; each sentence names a thing to change."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences

    @classmethod
    def of(cls, sentences: Iterable[object]) -> InputError:
        """Collect sentences, such as field errors."""
        return cls(*(str(sentence) for sentence in sentences))
