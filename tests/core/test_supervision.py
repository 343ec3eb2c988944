from __future__ import annotations

import pytest

from paddlejob.api import names
from paddlejob.api.names import Env
from paddlejob.api.v1 import Role
from paddlejob.core.attempts.processes import template_hash
from paddlejob.core.pod_set import Replica
from paddlejob.core.recorder import Recorder
from paddlejob.core.render import render_pod
from simkube.build import JobBuilder, job, snapshot

RECORDER = Recorder.of({"paddlejob_recorder.py": "1"}, "https://operator:8443", by_default=True)


def rendered(of: JobBuilder, role: Role = Role.WORKER):
    built = snapshot(of)
    built.recorder = RECORDER
    return render_pod(built.context(), Replica(role, 0))


def variables(pod) -> dict[str, str]:
    return {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}


SUPERVISED = {
    "collective": job().worker(2),
    "server": job().ps(1).worker(1),
    "Service, with gloo": job().ps(1).worker(1).spec(intranet="Service"),
    "restartPolicy Never is written": job().worker(1, pod={"restartPolicy": "Never"}),
    "a reference to a variable that stays": job().worker(1, command=["python", "$(PADDLE_TRAINER_ID)"]),
    "a number as an argument": job().worker(1, args=[1], env=[{"name": "A", "valueFrom": {}}]),
}


@pytest.mark.parametrize("of", SUPERVISED.values(), ids=SUPERVISED)
def test_pods_that_get_a_supervisor(of):
    role = Role.PS if "ps" in of.manifest["spec"] else Role.WORKER
    pod = rendered(of, role)
    template = of.build().spec.ps.template if role is Role.PS else of.build().spec.worker.template
    assert pod["metadata"]["annotations"][names.ANNOTATION_SUPERVISED] == template_hash(template)
    assert variables(pod)[Env.ATTEND_URL] == "https://operator:8443/v1/attend"
    assert Env.KEEP_ENV not in variables(pod)
    assert pod["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("parked", [True, False])
def test_a_supervisor_parks_a_process_on_request(parked):
    pod = rendered(job().worker(1).spec(restartPolicy={"parked": parked}))
    assert (variables(pod).get(Env.PARKED) == "1") is parked


NOT_SUPERVISED = {
    "no recorder": job().worker(1).spec(recorder=False),
    "inPlace is false": job().worker(1).spec(restartPolicy={"inPlace": False}),
    "host network": job().worker(1).spec(intranet="Host"),
    "the kubelet restarts it": job().worker(1, pod={"restartPolicy": "OnFailure"}),
    "the kubelet restarts it by default": job().ps(1).worker(1).spec(intranet="Service", withGloo=0),
    "hostPID": job().worker(1, pod={"hostPID": True}),
    "shareProcessNamespace": job().worker(1, pod={"shareProcessNamespace": True}),
    "livenessProbe": job().worker(1, livenessProbe={"exec": {}}),
    "startupProbe": job().worker(1, startupProbe={"exec": {}}),
    "an address in the command": job().worker(1, command=["python", "--port=$(PADDLE_PORT)"]),
    "an address in the arguments": job().worker(1, args=["$(PADDLE_TRAINER_ENDPOINTS)"]),
    "an address in a variable": job().worker(1, env=[{"name": "A", "value": "$(PADDLE_MASTER)"}]),
}


@pytest.mark.parametrize("of", NOT_SUPERVISED.values(), ids=NOT_SUPERVISED)
def test_pods_that_get_no_supervisor(of):
    pod = rendered(of)
    assert names.ANNOTATION_SUPERVISED not in pod["metadata"]["annotations"]
    assert Env.ATTEND_URL not in variables(pod)


def test_variables_of_the_template_are_kept_unless_the_operator_overrides_them():
    env = [{"name": name, "value": "1"} for name in (Env.PADDLE_PORT, Env.MASTER, Env.NNODES, "MINE")]
    assert variables(rendered(job().worker(1, env=env)))[Env.KEEP_ENV] == f"{Env.MASTER},{Env.NNODES}"
