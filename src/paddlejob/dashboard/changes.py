"""What the pages change: jobs, and new ones from YAML."""

from __future__ import annotations

import asyncio
import copy

from paddlejob.api.meta import JsonObject
from paddlejob.client import manifest as manifests
from paddlejob.client.errors import ClientError, InvalidJobError
from paddlejob.client.job import Job, Jobs
from paddlejob.dashboard.rows import key_of

SOURCE = "the manifest"


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


def problems(text: str) -> list[str]:
    """Return what is wrong with a YAML text, a sentence each."""
    try:
        jobs, beside = manifests.read(text, SOURCE)
        found = [problem for job in jobs for problem in manifests.problems(job)]
        for each in beside:
            manifests.resource_beside(each)
    except InvalidJobError as error:
        return list(error.problems)
    except ClientError as error:
        return [str(error)]
    return found


async def submit(jobs: Jobs, text: str) -> JsonObject:
    """Submit all jobs in a YAML text; return their keys and what was made beside them. Raises ClientError."""
    if wrong := await asyncio.to_thread(problems, text):
        raise InvalidJobError(*wrong)
    found, beside = manifests.read(text, SOURCE)
    notes = await jobs.submit_beside(beside)
    return {"keys": [key_of(await jobs.submit(each)) for each in found], "notes": notes}


async def manifest_text(job: Job) -> str:
    """Return what the job was submitted as, in YAML."""
    return manifests.dump(await copy.copy(job).manifests())
