"""PaddlePaddle training on Kubernetes, and on a laptop with the same YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paddlejob.sdk import Job, JobError, JobFailed, JobNotFoundError, JobTimeoutError, Line, train

__version__ = "0.2.0"
__all__ = ["Job", "JobError", "JobFailed", "JobNotFoundError", "JobTimeoutError", "Line", "train"]


def __getattr__(name: str) -> object:
    """Import the SDK on first use; the command line and the operator start faster without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paddlejob import sdk  # noqa: PLC0415

    return getattr(sdk, name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
