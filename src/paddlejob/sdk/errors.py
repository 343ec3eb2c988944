"""Errors that callers may catch. Each text is one sentence, except the text of JobFailed."""

from __future__ import annotations

from paddlejob.client.errors import ClientError, NoSuchJobError, WaitTimeoutError, sentence
from paddlejob.kube.errors import KubeError

SHOWN_LINES = 12
"""Number of last log lines of a failed rank in the text of an error."""


class JobError(Exception):
    """The call failed; the text gives the reason and a way out."""


class JobNotFoundError(JobError, LookupError):
    """There is no job with this name."""


class JobTimeoutError(JobError, TimeoutError):
    """The job did not finish in time. It keeps running."""


class JobFailed(JobError):  # noqa: N818 - the job failed; the caller made no error
    """The job has failed. The text names the rank that failed first, its last lines and what to do."""

    def __init__(
        self,
        message: str,
        rank: str = "",
        exit_code: int = 0,
        last_lines: tuple[str, ...] = (),
        advice: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, rank, exit_code, last_lines, advice)
        self.message = message
        self.rank = rank
        """The rank that failed first, such as worker-1; empty if no container failed."""
        self.exit_code = exit_code
        self.last_lines = last_lines
        """The end of the log of this rank, with its traceback if there is one."""
        self.advice = advice
        """Alternative ways out."""

    def __str__(self) -> str:
        lines = [self.message]
        if self.last_lines:
            lines.append(f"last lines of {self.rank}:")
            lines += [f"  | {line}" for line in self.last_lines[-SHOWN_LINES:]]
        lines += [f"what to do: {each}" for each in self.advice]
        return "\n".join(lines)


def to_job_error(error: ClientError | KubeError) -> JobError:
    """Return the SDK's error for an error of the client."""
    kinds = ((NoSuchJobError, JobNotFoundError), (WaitTimeoutError, JobTimeoutError))
    kind = next((ours for theirs, ours in kinds if isinstance(error, theirs)), JobError)
    return kind(sentence(error))
