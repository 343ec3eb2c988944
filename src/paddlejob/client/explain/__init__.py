"""Explain why a job is not running or why it failed, and the smallest change that helps.

    explanation = await explain_job(client, "team-a", "resnet")
    print(explanation)

`gather` reads with the caller's rights, and `explain` is pure. The explanation starts from the operator's
status message and adds objects that the operator does not watch: quotas, nodes and their pods, claims,
queues, the log.
"""

from paddlejob.client.explain.explain import explain, explain_job
from paddlejob.client.explain.result import Advice, Change, Explanation, Finding, FollowUp

__all__ = ["Advice", "Change", "Explanation", "Finding", "FollowUp", "explain", "explain_job"]
