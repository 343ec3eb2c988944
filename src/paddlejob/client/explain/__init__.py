"""Why a job is not running, or why it failed, and the smallest change that helps.

    explanation = await explain_job(client, "team-a", "resnet")
    print(explanation)

`gather` reads with the rights of whoever asks; `explain` is pure. What the operator says in a job's status is
taken over. What is added is what it does not see: quotas, nodes and who uses them, claims, queues, the log.
"""

from paddlejob.client.explain.explain import explain, explain_job
from paddlejob.client.explain.result import Advice, Change, Explanation, Finding, Then

__all__ = ["Advice", "Change", "Explanation", "Finding", "Then", "explain", "explain_job"]
