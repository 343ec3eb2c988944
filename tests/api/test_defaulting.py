from __future__ import annotations

from typing import Any

import pytest

from paddlejob.api.defaulting import Alias, aliases, effective, ineffective_fields
from paddlejob.api.v1 import CleanPodPolicy, Intranet, Mode, PaddleJobSpec, Role
from simkube.build import job


def spec_of(**fields: Any) -> PaddleJobSpec:
    return job().ps().worker().spec(**fields).build().spec


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        pytest.param({}, CleanPodPolicy.ON_COMPLETION, id="absent cleans completed jobs"),
        pytest.param({"cleanPodPolicy": ""}, CleanPodPolicy.ON_COMPLETION, id="empty is absent"),
        pytest.param({"cleanPodPolicy": "Always"}, CleanPodPolicy.ALWAYS, id="as documented"),
        pytest.param({"cleanPodPolicy": "Oncompletion"}, CleanPodPolicy.ON_COMPLETION, id="a small letter"),
        pytest.param({"cleanPodPolicy": "ONFAILURE"}, CleanPodPolicy.ON_FAILURE, id="capital letters"),
        pytest.param(
            {"cleanPodPolicy": "OnFailed"}, CleanPodPolicy.ON_FAILURE, id="another word for failure"
        ),
        pytest.param({"cleanPodPolicy": "Nerver"}, CleanPodPolicy.NEVER, id="a typo of published samples"),
        pytest.param(
            {"cleanPodPolicy": "Sometimes"}, CleanPodPolicy.NEVER, id="unknown text deletes nothing"
        ),
        pytest.param({"cleanPolicy": "Always"}, CleanPodPolicy.ALWAYS, id="the other name"),
        pytest.param(
            {"cleanPolicy": "Always", "cleanPodPolicy": "Never"},
            CleanPodPolicy.NEVER,
            id="the real name wins",
        ),
    ],
)
def test_clean_pod_policy(fields: dict[str, Any], policy: CleanPodPolicy) -> None:
    assert effective(spec_of(**fields)).clean_pod_policy is policy


@pytest.mark.parametrize(
    ("fields", "intranet"),
    [
        pytest.param({}, Intranet.POD_IP, id="absent is by address"),
        pytest.param({"intranet": "Service"}, Intranet.SERVICE, id="as documented"),
        pytest.param({"intranet": "service"}, Intranet.SERVICE, id="a small letter"),
        pytest.param({"intranet": "HostNetwork"}, Intranet.HOST, id="the word of the design document"),
        pytest.param({"intranet": "Mesh"}, Intranet.POD_IP, id="unknown text is by address"),
    ],
)
def test_intranet(fields: dict[str, Any], intranet: Intranet) -> None:
    assert effective(spec_of(**fields)).intranet is intranet


@pytest.mark.parametrize(
    ("builder", "with_gloo"),
    [
        pytest.param(job().ps().worker(), 1, id="on with servers"),
        pytest.param(job().ps().worker().spec(withGloo=0), 0, id="switched off"),
        pytest.param(job().ps().worker().spec(withGloo=2), 2, id="servers too"),
        pytest.param(job().ps().worker().spec(withGloo=7), 1, id="out of range is absent"),
        pytest.param(job().worker(2), 0, id="off without servers"),
        pytest.param(job().worker(2).spec(withGloo=1), 0, id="ignored without servers"),
        pytest.param(job().worker(2).ps(0).spec(withGloo=1), 0, id="ignored without any server's pod"),
    ],
)
def test_with_gloo(builder: Any, with_gloo: int) -> None:
    assert effective(builder.build().spec).with_gloo == with_gloo


@pytest.mark.parametrize(
    ("builder", "mode"),
    [
        pytest.param(job().ps().worker(), Mode.PS, id="servers"),
        pytest.param(job().ps().worker().heter(), Mode.HETER, id="heter"),
        pytest.param(job().worker(2), Mode.COLLECTIVE, id="several workers"),
        pytest.param(job().worker(1), Mode.SINGLE, id="one worker"),
        pytest.param(job().worker(2).ps(0), Mode.COLLECTIVE, id="servers without pods"),
        pytest.param(job(), Mode.SINGLE, id="nothing at all"),
    ],
)
def test_mode(builder: Any, mode: Mode) -> None:
    assert effective(builder.build().spec).mode is mode


def test_roles_are_in_order_of_creation_and_have_pods() -> None:
    roles = effective(job().heter(1).worker(2).ps(0).build().spec).roles
    assert [(role, spec.replicas) for role, spec in roles] == [(Role.WORKER, 2), (Role.HETER, 1)]


@pytest.mark.parametrize(
    ("fields", "sentences"),
    [
        pytest.param({}, [], id="nothing written"),
        pytest.param({"intranet": "Host", "cleanPodPolicy": "OnFailure"}, [], id="all as documented"),
        pytest.param({"intranet": "Mesh", "cleanPodPolicy": "Sometimes"}, [], id="unknown text is no alias"),
        pytest.param(
            {"cleanPolicy": "Always"},
            ["spec.cleanPolicy: Always is read as cleanPodPolicy: Always; write it that way"],
            id="the other name",
        ),
        pytest.param(
            {"cleanPolicy": "Always", "cleanPodPolicy": "Never"},
            ["spec.cleanPolicy: Always has no effect with spec.cleanPodPolicy; remove it"],
            id="both names",
        ),
        pytest.param(
            {"intranet": "HostNetwork", "cleanPodPolicy": "Nerver"},
            [
                "spec.cleanPodPolicy: Nerver is read as cleanPodPolicy: Never; write it that way",
                "spec.intranet: HostNetwork is read as intranet: Host; write it that way",
            ],
            id="two aliases",
        ),
    ],
)
def test_aliases_as_messages(fields: dict[str, Any], sentences: list[str]) -> None:
    assert [str(alias) for alias in aliases(spec_of(**fields))] == sentences


def test_an_alias_names_field_text_and_meaning() -> None:
    assert list(aliases(spec_of(cleanPodPolicy="oncompletion"))) == [
        Alias("spec.cleanPodPolicy", "oncompletion", "cleanPodPolicy: OnCompletion"),
    ]


GLOO_ON_WORKERS = (
    "spec.withGloo: 2 connects the workers only; to connect the servers too, mount a shared volume in both "
    "templates and set PADDLE_GLOO_FS_PATH to a directory on it"
)
SAMPLE_SET = (
    "spec.sampleSetRef: imagenet has no effect, because SampleSets are not supported; mount a "
    "persistentVolumeClaim with the data at /data in the templates"
)
PARKED = (
    "spec.restartPolicy.parked has no effect on spec.worker, because Paddle's launcher starts the ranks "
    "itself; start the program with python"
)
LAUNCH = ["python", "-m", "paddle.distributed.launch", "train.py"]
GLOO_DIRECTORY = {"env": [{"name": "PADDLE_GLOO_FS_PATH", "value": "/shared/gloo"}]}


@pytest.mark.parametrize(
    ("builder", "messages"),
    [
        pytest.param(job().ps().worker(), [], id="nothing written"),
        pytest.param(job().ps().worker().spec(withGloo=2), [GLOO_ON_WORKERS], id="gloo without a directory"),
        pytest.param(
            job().ps(**GLOO_DIRECTORY).worker().spec(withGloo=2), [GLOO_ON_WORKERS], id="for one role alone"
        ),
        pytest.param(
            job().ps(**GLOO_DIRECTORY).worker(**GLOO_DIRECTORY).spec(withGloo=2),
            [],
            id="gloo with a directory",
        ),
        pytest.param(job().worker(2).spec(withGloo=2), [], id="gloo without servers"),
        pytest.param(
            job().worker().spec(sampleSetRef={"name": "imagenet", "mountPath": "/data"}),
            [SAMPLE_SET],
            id="a sample set of PaddleCloud",
        ),
        pytest.param(
            job().worker(command=LAUNCH).spec(restartPolicy={"parked": True}), [PARKED], id="parked, launched"
        ),
        pytest.param(job().worker(command=LAUNCH), [], id="launched"),
        pytest.param(
            job().worker(command=["python", "train.py"]).spec(restartPolicy={"parked": True}),
            [],
            id="parked, with python",
        ),
    ],
)
def test_fields_without_their_full_effect(builder: Any, messages: list[str]) -> None:
    assert list(ineffective_fields(builder.build().spec)) == messages
