from __future__ import annotations

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.v1 import Role
from paddlejob.core.actions import Create, InstallRecorder, Kind
from paddlejob.core.gang.model import GangApis
from paddlejob.core.plan import plan
from paddlejob.core.pod_set import Replica
from paddlejob.core.recorder import Recorder
from paddlejob.core.render import render_pod
from simkube.build import SnapshotBuilder, job, snapshot

FILES = {"__init__.py": "code", "site/sitecustomize.py": "start", "ca.crt": "PEM"}
RECORDER = Recorder.of(FILES, "https://reports.paddle-system.svc:8443")
BY_DEFAULT = Recorder.of(FILES, RECORDER.url, by_default=True)
SITE = "/etc/paddlejob/recorder/site"


def of_recorded(of, recorder: Recorder | None = RECORDER) -> SnapshotBuilder:
    builder = snapshot(of)
    builder.recorder = recorder
    return builder


def spec_of(of, role: Role = Role.WORKER, recorder: Recorder | None = RECORDER):
    return render_pod(of_recorded(of, recorder).context(), Replica(role, 0))["spec"]


def env_of(**container) -> list:
    return spec_of(job().worker(1, **container).spec(recorder=True))["containers"][0]["env"]


def installs(builder: SnapshotBuilder) -> list[InstallRecorder]:
    stages = plan(builder.build()).stages
    return [action for stage in stages for action in stage if isinstance(action, InstallRecorder)]


@pytest.mark.parametrize(
    ("asked", "available", "is_on"),
    [
        pytest.param(True, RECORDER, True, id="the job asks for it"),
        pytest.param(None, RECORDER, False, id="nobody asks for it"),
        pytest.param(None, BY_DEFAULT, True, id="the platform wants it"),
        pytest.param(False, BY_DEFAULT, False, id="the job does not want it"),
        pytest.param(True, None, False, id="nobody takes reports"),
    ],
)
def test_who_has_the_recorder(asked: bool | None, available: Recorder | None, is_on: bool):
    of = job().worker(1)
    of = of if asked is None else of.spec(recorder=asked)
    assert ("volumes" in spec_of(of, recorder=available)) is is_on
    assert bool(installs(of_recorded(of, available))) is is_on


def test_a_worker_mounts_the_code_and_a_token_for_reports_only():
    spec = spec_of(job().worker(1, pod={"volumes": [{"name": "data"}]}).spec(recorder=True))
    mine, ours, _ = spec["volumes"]
    assert mine == {"name": "data"}
    assert ours == {
        "name": "paddlejob-recorder",
        "projected": {
            "sources": [
                {
                    "configMap": {
                        "name": RECORDER.name,
                        "items": [
                            {"key": "__init__.py", "path": "__init__.py"},
                            {"key": "ca.crt", "path": "ca.crt"},
                            {"key": "site.sitecustomize.py", "path": "site/sitecustomize.py"},
                        ],
                        "optional": True,
                    }
                },
                {
                    "serviceAccountToken": {
                        "audience": "paddlejob-recorder",
                        "expirationSeconds": 3600,
                        "path": "token",
                    }
                },
            ]
        },
    }
    assert spec["containers"][0]["volumeMounts"][0] == {
        "name": "paddlejob-recorder",
        "mountPath": "/etc/paddlejob/recorder",
        "readOnly": True,
    }
    assert {"name": "PADDLEJOB_REPORT_URL", "value": RECORDER.url} in spec["containers"][0]["env"]


def test_kubeflows_sdk_finds_where_to_report_unless_the_template_says_it():
    prefix = "KUBEFLOW_TRAINER_SERVER_"

    def given(**container) -> dict[str, str]:
        env = spec_of(job().worker(1, **container).spec(recorder=True))["containers"][0]["env"]
        found = ((each["name"], each.get("value")) for each in env)
        return {name.removeprefix(prefix): value for name, value in found if name.startswith(prefix)}

    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/demo/status"
    mount = "/etc/paddlejob/recorder"
    assert given() == {
        "URL": f"{RECORDER.url}{path}",
        "CA_CERT": f"{mount}/ca.crt",
        "TOKEN": f"{mount}/token",
    }
    assert given(env=[{"name": f"{prefix}URL", "value": "https://own"}]) == {"URL": "https://own"}


def test_only_the_container_that_trains_has_it():
    pod = {"containers": [{"name": "main"}, {"name": "sidecar"}]}
    spec = spec_of(job().worker(1, pod=pod).spec(recorder=True))
    assert spec["containers"][1] == {"name": "sidecar"}


def test_parameter_servers_take_no_steps_and_report_none():
    of = job().ps(1).worker(1).heter(1).spec(recorder=True, restartPolicy={"inPlace": False})
    assert "volumes" not in spec_of(of, Role.PS)
    assert "volumes" in spec_of(of, Role.HETER)


def test_parameter_servers_with_a_supervisor_mount_the_recorder_and_report_no_steps():
    found = spec_of(job().ps(1).worker(1).spec(recorder=True), Role.PS)
    [container] = found["containers"]
    env = {each["name"] for each in container["env"]}
    assert "volumes" in found
    assert names.Env.ATTEND_URL in env
    assert names.Env.REPORT_URL not in env


def test_the_template_is_left_as_it_was():
    of = job().worker(1, env=[{"name": "PYTHONPATH", "value": "/app"}], volumeMounts=[{"name": "data"}])
    builder = of_recorded(of.spec(recorder=True))
    first, second = (render_pod(builder.context(), Replica(Role.WORKER, 0)) for _ in range(2))
    assert first == second
    assert len(first["spec"]["containers"][0]["volumeMounts"]) == 3


@pytest.mark.parametrize(
    ("given", "there"),
    [
        pytest.param([], [{"name": "PYTHONPATH", "value": SITE}], id="none"),
        pytest.param(
            [{"name": "PYTHONPATH", "value": "/app:$(HOME)/lib"}],
            [{"name": "PYTHONPATH", "value": f"{SITE}:/app:$(HOME)/lib"}],
            id="a value",
        ),
        pytest.param([{"name": "PYTHONPATH"}], [{"name": "PYTHONPATH", "value": SITE}], id="an empty value"),
        pytest.param(
            [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}}}],
            [
                {
                    "name": "PADDLEJOB_GIVEN_PYTHONPATH",
                    "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}},
                },
                {"name": "PYTHONPATH", "value": f"{SITE}:$(PADDLEJOB_GIVEN_PYTHONPATH)"},
            ],
            id="a reference",
        ),
    ],
)
def test_a_path_of_the_template_follows_ours(given: list, there: list):
    env = env_of(env=given)
    assert [variable for variable in env if "PYTHONPATH" in variable["name"]] == there


def test_a_path_keeps_its_place_among_variables_that_refer_to_it():
    env = env_of(
        env=[{"name": "PYTHONPATH", "value": "/app"}, {"name": "TOOLS", "value": "$(PYTHONPATH)/tools"}]
    )
    names = [variable["name"] for variable in env]
    assert names.index("PYTHONPATH") < names.index("TOOLS")


def test_the_code_is_there_before_the_first_worker():
    builder = of_recorded(job("train", "team").ps(1).worker(2).spec(recorder=True, intranet="Service"))
    stages = plan(builder.build()).stages
    kinds = [
        "recorder" if isinstance(action, InstallRecorder) else action.kind
        for stage in stages
        for action in stage[:1]
        if isinstance(action, Create | InstallRecorder)
    ]
    assert kinds.index("recorder") < kinds.index(Kind.POD)
    [install] = installs(builder)
    metadata = install.manifest["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (RECORDER.name, "team")
    assert metadata["labels"] == {"paddle-res-name": RECORDER.name}
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("PaddleJob", "train", False)
    assert install.manifest["immutable"] is True
    assert install.manifest["data"] == {
        "__init__.py": "code",
        "ca.crt": "PEM",
        "site.sitecustomize.py": "start",
    }


def test_the_code_is_created_once_a_namespace():
    builder = of_recorded(job().worker(2).spec(recorder=True))
    builder.has_recorder = True
    assert not installs(builder)


def test_code_that_was_deleted_with_its_owner_comes_back_for_pods_that_have_not_started():
    of = job().worker(2).spec(recorder=True)
    assert installs(of_recorded(of).pods())
    assert not installs(of_recorded(of).pods_running().config({}))


def test_pods_of_servers_alone_do_not_bring_it_back():
    of = job().ps(1).worker(1).spec(recorder=True)
    assert not installs(of_recorded(of).pod("ps", 0).running("worker", 0))


OBSTACLE = "ConfigMap x has other content"


def test_while_the_code_is_not_ours_new_pods_have_none_and_the_job_says_so():
    builder = of_recorded(job().worker(2).spec(recorder=True))
    created = plan(msgspec.structs.replace(builder.build(), recorder_obstacle=OBSTACLE))
    pods = [action for stage in created.stages for action in stage if isinstance(action, Create)]
    assert [action.kind for action in pods] == [Kind.POD, Kind.POD]
    volumes = [volume for action in pods for volume in action.manifest["spec"].get("volumes", ())]
    assert "paddlejob-recorder" not in [volume["name"] for volume in volumes]

    running = builder.pods_running().config({}).build()
    decided = plan(msgspec.structs.replace(running, recorder_obstacle=OBSTACLE))
    note = f"new pods get no recorder: {OBSTACLE}"
    assert decided.status.message == f"2 workers running; {note}"
    assert [event.message for event in decided.events if event.reason == "NoRecorder"] == [note]
    told = msgspec.structs.replace(running.job, status=decided.status)
    again = plan(msgspec.structs.replace(running, recorder_obstacle=OBSTACLE, job=told))
    assert not [event for event in again.events if event.reason == "NoRecorder"]


def test_a_job_without_the_recorder_does_not_speak_of_it():
    given = of_recorded(job().worker(1)).pods_running().build()
    assert "recorder" not in plan(msgspec.structs.replace(given, recorder_obstacle=OBSTACLE)).status.message


def test_another_version_has_another_name():
    other = Recorder.of({**FILES, "ca.crt": "another"}, RECORDER.url)
    assert Recorder.of(dict(reversed(FILES.items())), RECORDER.url).name == RECORDER.name != other.name


@pytest.mark.parametrize(
    ("asked", "recorder", "apis", "told"),
    [
        pytest.param(True, None, GangApis(), ["NoRecorder"], id="nobody takes reports"),
        pytest.param(True, RECORDER, GangApis(), [], id="there is one"),
        pytest.param(False, None, GangApis(), [], id="nobody asked"),
        pytest.param(True, None, None, [], id="on a laptop"),
    ],
)
def test_who_asks_for_what_there_is_not_is_told(asked, recorder, apis, told):
    given = of_recorded(job().worker(1).spec(recorder=asked).metadata(generation=1), recorder).build()
    decided = plan(msgspec.structs.replace(given, gang_apis=apis))
    assert [event.reason for event in decided.events if event.reason == "NoRecorder"] == told
