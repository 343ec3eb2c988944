"""docs/reference/environment.md says which pod gets which variable; here it is held against the code."""

from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path

import msgspec
import pytest

from paddlejob.api.names import PROTECTED_ENV, Env
from paddlejob.api.v1 import Role
from paddlejob.core.attempts.elastic import with_rendezvous
from paddlejob.core.paddle_env import config_data, hosts_of
from paddlejob.core.pod_set import Replica, pod_set_of
from paddlejob.core.render import render_pod
from simkube.build import JobBuilder, job, snapshot

PAGES = [
    Path(__file__).parents[2] / "docs" / "reference" / name
    for name in ("environment.md", "environment.zh-CN.md")
]
TITLES = (
    *("variable", "from", "ps", "worker", "collective", "heter ps", "heter worker", "heter", "etcd"),
    *("override", "value"),
)
GLOO_DIRECTORY = {"env": [{"name": Env.GLOO_FS_PATH, "value": "/shared"}]}
PS = job().ps(1, **GLOO_DIRECTORY).worker(1, **GLOO_DIRECTORY).spec(withGloo=2)
HETER = job().ps(1).worker(1).heter(1)
PODS: dict[str, tuple[JobBuilder, Role]] = {
    "ps": (PS, Role.PS),
    "worker": (PS, Role.WORKER),
    "collective": (job().worker(2), Role.WORKER),
    "heter ps": (HETER, Role.PS),
    "heter worker": (HETER, Role.WORKER),
    "heter": (HETER, Role.HETER),
    "etcd": (job().worker(2).spec(elastic=1), Role.WORKER),
}
OURS = re.compile(rf"{Env.ATTEMPT}_\d.*")
SELECTED = re.compile(Env.SELECTED_DEVICES.format(r"\w+"))
VARIANTS = (
    {},
    {"resources": {"limits": {"huawei.com/Ascend910": 1}}},
    {"securityContext": {"readOnlyRootFilesystem": True}},
)
"""Training containers that get additional variables."""


def given(of: JobBuilder, role: Role, *, etcd: bool) -> dict[str, str]:
    """Return the variables that a pod can get, each with its source."""
    found: dict[str, str] = {}
    for container, intranet in itertools.product(VARIANTS, ("PodIP", "Host")):
        found |= given_to(of, role, container, intranet, etcd=etcd)
    return found


def given_to(of: JobBuilder, role: Role, container, intranet: str, *, etcd: bool) -> dict[str, str]:
    variant = copy.deepcopy(of).spec(intranet=intranet)
    for each in variant.manifest["spec"].values():
        if isinstance(each, dict):
            each["template"]["spec"]["containers"][0].update(container)
    built = snapshot(variant).pods_with_addresses()
    context = built.context()
    spec = with_rendezvous(context.spec, context.job.spec, "10.0.0.9:2379" if etcd else "")
    context = msgspec.structs.replace(context, spec=spec)
    pod_set = pod_set_of("demo", built.spec.roles, built.build().pods)
    shared = config_data(context, hosts_of(context, pod_set) or {})
    env = render_pod(context, Replica(role, 0))["spec"]["containers"][0]["env"]
    names = [variable["name"] for variable in env if variable not in GLOO_DIRECTORY["env"]]
    own = [SELECTED.sub("FLAGS_selected_<type>s", name) for name in names]
    return {
        **dict.fromkeys((name for name in shared if not OURS.fullmatch(name)), "ConfigMap"),
        **dict.fromkeys(own, "pod"),
    }


@pytest.fixture(params=PAGES, ids=lambda path: path.name)
def rows(request: pytest.FixtureRequest) -> dict[str, dict[str, str]]:
    """The table of the page: variable to column to cell."""
    lines = [
        line.strip("|").split("|") for line in request.param.read_text().splitlines() if line.startswith("|")
    ]
    _, _, *body = [[cell.strip() for cell in line] for line in lines]
    return {cells[0].strip("`"): dict(zip(TITLES, cells, strict=True)) for cells in body}


@pytest.mark.parametrize("pod", PODS)
def test_the_page_says_what_a_pod_gets(pod, rows):
    of, role = PODS[pod]
    expected = given(of, role, etcd=pod == "etcd")
    assert {name for name, cells in rows.items() if cells[pod]} == set(expected)
    assert {name: rows[name]["from"] for name in expected} == expected


def test_the_page_says_which_variables_are_the_operators_own(rows):
    protected = {name for name, cells in rows.items() if cells["override"] == "refused"}
    assert protected == PROTECTED_ENV
