"""Which pods get a supervisor, which restarts their program in place, and what it needs.

The supervisor is part of the recorder. It must be the only one that starts and ends the program, and the
program must read its addresses from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.api.v1 import Role
from paddlejob.core.paddle_env import JobContext
from paddlejob.core.pod_set import training_container
from paddlejob.core.recorder import ATTEND_PATH

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
"""A variable that the kubelet expands once, when it creates the container."""
_CHANGING = frozenset(
    {
        Env.PADDLE_PORT,
        Env.CURRENT_ENDPOINT,
        Env.TRAINER_ENDPOINTS,
        Env.TRAINERS,
        Env.TRAINERS_NUM,
        Env.MASTER,
        Env.NNODES,
        Env.GLOBAL_SIZE,
        Env.PSERVER_ENDPOINTS,
        Env.GLOO_HTTP_ENDPOINT,
        Env.SYS_JOB_ID,
        Env.ALL_HETER_ENDPOINTS,
        Env.NEXT_HETER_ENDPOINTS,
        Env.PREVIOUS_HETER_ENDPOINTS,
        Env.ATTEMPT,
    }
)
"""Variables that have another value after a restart in place."""


def is_supervised(context: JobContext, role: Role) -> bool:
    """Return whether new pods of a role get a supervisor."""
    template = context.role_spec(role).template.get("spec") or {}
    container = training_container(context.role_spec(role))
    return (
        context.recorder is not None
        and context.job.spec.restart_policy.in_place
        and context.spec.rendezvous is None
        and not context.network.has_host_ports
        and (template.get("restartPolicy") or default_restart_policy(context, role)) == "Never"
        and not (template.get("hostPID") or template.get("shareProcessNamespace"))
        and not (container.get("livenessProbe") or container.get("startupProbe"))
        and _CHANGING.isdisjoint(_references(container))
    )


def default_restart_policy(context: JobContext, role: Role) -> str:
    """Return OnFailure only for workers that keep their name and can rejoin their peers."""
    rejoins = role is Role.WORKER and context.network.by_name and not context.spec.with_gloo
    rejoins = rejoins or context.spec.rendezvous is not None
    return "OnFailure" if rejoins else "Never"


def with_supervisor(pod_spec: JsonObject, context: JobContext, given: JsonObject) -> JsonObject:
    """Return the pod spec with the variables of the supervisor; `given` is the template's container."""
    assert context.recorder is not None
    first, *others = pod_spec["containers"]
    names_given = {str(each.get("name")) for each in given.get("env") or ()}
    kept = sorted((names_given & _CHANGING) - names.PROTECTED_ENV)
    env = [*first["env"], {"name": Env.ATTEND_URL, "value": f"{context.recorder.url}{ATTEND_PATH}"}]
    if context.job.spec.restart_policy.parked:
        env.append({"name": Env.PARKED, "value": "1"})
    if kept:
        env.append({"name": Env.KEEP_ENV, "value": ",".join(kept)})
    return {**pod_spec, "containers": [{**first, "env": env}, *others]}


def _references(container: JsonObject) -> Iterator[str]:
    texts = [*(container.get("command") or ()), *(container.get("args") or ())]
    texts += [each.get("value") for each in container.get("env") or ()]
    for text in texts:
        if isinstance(text, str):
            yield from _REFERENCE.findall(text)
