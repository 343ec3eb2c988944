"""Changes from the pages: actions on jobs, and new jobs from YAML."""

from __future__ import annotations

import copy
from typing import NamedTuple

from paddlejob.api.meta import JsonObject
from paddlejob.client import manifest as manifests
from paddlejob.client.errors import ClientError, InvalidJobError
from paddlejob.client.job import Job, Jobs
from paddlejob.dashboard.rows import key_of
from paddlejob.text import one_line

SOURCE = "the manifest"
MAX_PROBLEMS = 50
PROBLEM_LENGTH = 1000


async def change(job: Job, name: str, body: JsonObject) -> JsonObject:
    """Perform an action; return a message, and the key of a new job. Raises ClientError."""
    # Pages share the job object; an action must not change it.
    job = copy.copy(job)
    match name:
        case "suspend" | "resume" | "stop" | "delete":
            return {"message": await getattr(job, name)()}
        case "retry":
            return {"message": "submitted again", "key": key_of(await job.retry())}
        case "scale":
            workers = body.get("workers")
            if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
                raise ClientError(f"workers: Invalid value: {workers}: must be 0 or greater")
            return {"message": await job.scale(workers)}
    raise ClientError(f"unknown action {name!r}")


class Submission(NamedTuple):
    """The jobs and other objects of a YAML text, and its problems."""

    jobs: list[JsonObject]
    others: list[JsonObject]
    problems: list[str]


def read(text: str) -> Submission:
    """Parse and validate a YAML text; at most MAX_PROBLEMS problems are returned."""
    try:
        jobs, others = manifests.read(text, SOURCE)
        found = [problem for job in jobs for problem in manifests.problems(job)]
        for each in others:
            manifests.resource_beside(each)
    except InvalidJobError as error:
        return Submission([], [], _first(list(error.problems)))
    except ClientError as error:
        return Submission([], [], [str(error)])
    return Submission(jobs, others, _first(found))


def _first(problems: list[str]) -> list[str]:
    kept = [one_line(each, PROBLEM_LENGTH) for each in problems[:MAX_PROBLEMS]]
    left = len(problems) - len(kept)
    return [*kept, f"and {left} more problems"] if left else kept


async def submit(jobs: Jobs, submission: Submission) -> JsonObject:
    """Submit all jobs of a YAML text; return their keys and notes for the user. Raises ClientError."""
    if submission.problems:
        raise InvalidJobError(*submission.problems)
    notes = await jobs.submit_beside(submission.others)
    return {"keys": [key_of(await jobs.submit(each)) for each in submission.jobs], "notes": notes}


async def manifest_text(job: Job) -> str:
    """Return the manifest of a job as YAML."""
    return manifests.dump(await copy.copy(job).manifests())
