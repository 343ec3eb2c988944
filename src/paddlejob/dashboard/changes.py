"""What the pages change: jobs, and new ones from YAML."""

from __future__ import annotations

import copy
from typing import NamedTuple

from paddlejob.api.meta import JsonObject
from paddlejob.client import manifest as manifests
from paddlejob.client.errors import ClientError, InvalidJobError
from paddlejob.client.job import Job, Jobs
from paddlejob.core.messages import one_line
from paddlejob.dashboard.rows import key_of

SOURCE = "the manifest"
MAX_PROBLEMS = 50
PROBLEM_LENGTH = 1000


async def change(job: Job, name: str, body: JsonObject) -> JsonObject:
    """Do what a button says; return a sentence, and the key of a job that was made. Raises ClientError."""
    # The job that the pages share must not be changed by what is read here.
    job = copy.copy(job)
    match name:
        case "suspend":
            return {"message": await job.suspend()}
        case "resume":
            return {"message": await job.resume()}
        case "stop":
            return {"message": await job.stop()}
        case "delete":
            return {"message": await job.delete()}
        case "retry":
            return {"message": "submitted again", "key": key_of(await job.retry())}
        case "scale":
            workers = body.get("workers")
            if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
                raise ClientError(f"workers: Invalid value: {workers}: must be 0 or greater")
            return {"message": await job.scale(workers)}
    raise ClientError(f"a job cannot be changed by {name!r}")


class Submission(NamedTuple):
    """A YAML text, read and checked."""

    jobs: list[JsonObject]
    others: list[JsonObject]
    problems: list[str]


def read(text: str) -> Submission:
    """Read a YAML text; the first MAX_PROBLEMS sentences about it are kept."""
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
    """Submit all jobs of a YAML text; return their keys and the other objects created. Raises ClientError."""
    if submission.problems:
        raise InvalidJobError(*submission.problems)
    notes = await jobs.submit_beside(submission.others)
    return {"keys": [key_of(await jobs.submit(each)) for each in submission.jobs], "notes": notes}


async def manifest_text(job: Job) -> str:
    """Return what the job was submitted as, in YAML."""
    return manifests.dump(await copy.copy(job).manifests())
