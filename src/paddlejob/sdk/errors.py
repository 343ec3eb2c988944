"""What a caller may catch. Every text is for a person: one sentence, where nothing else is said."""

from __future__ import annotations

from paddlejob.client.errors import ClientError, NoSuchJobError, WaitTimeoutError, sentence
from paddlejob.kube.errors import KubeError

SHOWN_LINES = 12
"""How many of a failed rank's last lines are part of the text of an error."""


class JobError(Exception):
    """What was asked for cannot be done; the text says why and what to do."""


class JobNotFoundError(JobError, LookupError):
    """There is no job of that name."""


class JobTimeoutError(JobError, TimeoutError):
    """The job did not end in time. It goes on."""


class JobFailed(JobError):  # noqa: N818 - a job fails; that is what happened, not a mistake of the caller
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
        """The rank that failed first, such as worker-1; empty where no container failed."""
        self.exit_code = exit_code
        self.last_lines = last_lines
        """The end of that rank's log: its traceback if there is one."""
        self.advice = advice
        """What may help, as alternatives."""

    def __str__(self) -> str:
        lines = [self.message]
        if self.last_lines:
            lines.append(f"last lines of {self.rank}:")
            lines += [f"  | {line}" for line in self.last_lines[-SHOWN_LINES:]]
        lines += [f"what to do: {each}" for each in self.advice]
        return "\n".join(lines)


def translated(error: ClientError | KubeError) -> JobError:
    """Return the error that a caller of the SDK sees."""
    kinds = ((NoSuchJobError, JobNotFoundError), (WaitTimeoutError, JobTimeoutError))
    kind = next((ours for theirs, ours in kinds if isinstance(error, theirs)), JobError)
    return kind(sentence(error))
