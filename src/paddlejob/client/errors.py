"""Errors for users, each in one sentence.

The methods of this package raise ClientError, or KubeError for errors of the API server or the connection;
`sentence` returns both as a sentence.
"""

from __future__ import annotations

import re

from paddlejob.kube import errors


class ClientError(Exception):
    """The request cannot be carried out. The text is a sentence with the reason and the way out."""


class NoSuchJobError(ClientError):
    """There is no job of that name."""


class UnsupportedError(ClientError):
    """Only jobs on a cluster, or only runs on this machine, support the request."""


class NameTakenError(ClientError):
    """A job of that name already exists."""


class TooManyLogsError(ClientError):
    """There are more logs to read than the query allows."""


class InvalidJobError(ClientError):
    """The manifest is invalid; `problems` has a sentence for each error."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class WaitTimeoutError(ClientError):
    """The job did not reach the goal in time."""


class GoalMissedError(ClientError):
    """The job ended or was deleted, and can no longer reach the goal."""


_DENIED = re.compile(
    r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"'
    r'(?: in the namespace "([^"]+)"| at the cluster scope)'
)
_RIGHTS = {
    "get": "get and list",
    "list": "get and list",
    "watch": "get, list and watch",
    "pods/log": "get",
    "pods/exec": "get and create",
    "pods/portforward": "get and create",
}
"""The permissions to request, by resource or else by the denied verb."""


def sentence(error: Exception) -> str:
    """Return an error of this package or of `paddlejob.kube` as a sentence for users."""
    match error:
        case errors.ForbiddenError() if denied := _DENIED.search(str(error)):
            return _denied(*denied.groups(default=""))
        case errors.UnauthorizedError():
            return (
                "the API server does not accept your credentials: they are wrong or have expired; log in "
                "again or choose another context"
            )
        case errors.NotFoundError() if error.status.details is None or not error.status.details.name:
            return (
                "this cluster does not know PaddleJobs; install the operator first, see docs/install.md "
                f"({error})"
            )
    return str(error)


def _denied(verb: str, resource: str, group: str, namespace: str) -> str:
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    rights = _RIGHTS.get(resource) or _RIGHTS.get(verb, verb)
    kind, slash, subresource = resource.partition("/")
    asked = f"{kind}{'.' if group else ''}{group}{slash}{subresource}"
    return f"cannot {verb} {resource} {where}: needs {rights} on {asked}"


def problems_of(error: errors.ApiError) -> list[str]:
    """Return the errors in a reply of the API server, one sentence each."""
    details = error.status.details
    causes = [
        f"{each.field}: {each.message}" if each.field else each.message
        for each in (details.causes if details else ())
    ]
    return list(dict.fromkeys(causes)) or [str(error)]
