"""PaddleJobs from Python: in scripts, at a prompt and in notebooks.

    from paddlejob import Job, train

    job = train("train.py", workers=2, where="laptop")
    for line in job.logs(follow=True):
        print(line.rank, line)
    job.wait()

A thin, synchronous layer over `paddlejob.client` that submits ordinary PaddleJobs. See docs/sdk.md.
"""

from paddlejob.sdk.errors import JobError, JobFailed, JobNotFoundError, JobTimeoutError
from paddlejob.sdk.job import Job, Line
from paddlejob.sdk.training import train

__all__ = ["Job", "JobError", "JobFailed", "JobNotFoundError", "JobTimeoutError", "Line", "train"]
