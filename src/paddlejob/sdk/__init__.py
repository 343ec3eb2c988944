"""Jobs from Python: in a script, at a prompt, in a notebook.

    from paddlejob import Job, train

    job = train("train.py", workers=2, where="laptop")
    for line in job.logs(follow=True):
        print(line.rank, line)
    job.wait()

A thin, synchronous layer over `paddlejob.client`. What it submits is an ordinary PaddleJob; docs/sdk.md shows
all of it.
"""

from paddlejob.sdk.errors import JobError, JobFailed, JobNotFoundError, JobTimeoutError
from paddlejob.sdk.job import Job, Line
from paddlejob.sdk.training import train

__all__ = ["Job", "JobError", "JobFailed", "JobNotFoundError", "JobTimeoutError", "Line", "train"]
