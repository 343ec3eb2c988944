"""The corpus of hostile objects under virtual time, and objects that hypothesis makes up beside it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from behaviour.stage import QUICK, Stage
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.errors import KubeError
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.build import job
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Exit
from tests.support import hostile
from tests.support.definitions import PADDLE_JOB_CRD, VOLCANO_CRD
from tests.support.hostile import CORPUS, Hostile

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[1]
GOOD_SECONDS = 3.0
"""Virtual; a job of a second takes this long alone."""
READABLE_DEPTH = 900
"""The server in memory keeps objects, not texts."""
IN_MEMORY = {
    name: case for name, case in CORPUS.items() if case.depth <= READABLE_DEPTH and "5,000" not in name
}


def play(case: Hostile, *, volcano: bool) -> str | None:
    """Let the operator meet a case, and a job beside it complete; give what the case's status says."""

    async def main() -> str | None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        for definition in (PADDLE_JOB_CRD, *([VOLCANO_CRD] if volcano else [])):
            server.install(definition)
        client = Client(server.transport("all"))
        stage = Stage(client, "default")
        # Pods that a real server would refuse reach no kubelet.
        selector = f"{names.LABEL_JOB}=good"
        stage.kubelet = Kubelet(client, behaviour=stage.fates.decide, timing=QUICK, label_selector=selector)
        said: str | None = None

        async def act(stage: Stage) -> None:
            nonlocal said
            if not await put(stage, case):
                return
            began = virtual_loop.now()
            stage.fates.set("good-worker-0", Exit(0, 1.0))
            await stage.submit(job("good").worker(1))
            await stage.phase("Completed", "good")
            assert (virtual_loop.now() - began).total_seconds() < GOOD_SECONDS
            await asyncio.sleep(60)
            status = await stage.status(hostile.NAME)
            said = f"{status.get('phase')}: {status.get('reason')}: {status.get('message')}"

        await stage.play(act)
        return said

    return virtual_loop.run(main(), seed=1)


async def put(stage: Stage, case: Hostile) -> bool:
    """Store a case; tell whether the server takes it."""
    try:
        await stage.client.create(PADDLE_JOBS, stage.namespace, json.loads(case.text()))
    except KubeError:
        return False
    uid = (await stage.job(hostile.NAME))["metadata"]["uid"]
    for resource, text in case.texts_beside(uid):
        body = json.loads(text)
        await stage.client.create(resource, stage.namespace, body)
        if "status" in body:
            await stage.client.patch(
                resource,
                stage.namespace,
                body["metadata"]["name"],
                {"status": body["status"]},
                subresource="status",
            )
    if case.status:
        patch = {"status": case.status}
        await stage.client.patch(PADDLE_JOBS, stage.namespace, hostile.NAME, patch, subresource="status")
    return True


@pytest.mark.parametrize("volcano", [False, True], ids=["without Volcano", "with Volcano"])
@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_neighbouring_job_is_as_fast_and_the_error_is_reported(name, volcano):
    case = IN_MEMORY[name]
    if case.needs_volcano and not volcano:
        pytest.skip("it is harmless without Volcano")
    said = play(case, volcano=volcano)
    assert said is not None, "the server in memory refuses it"
    assert not said.startswith("None")
    if name not in hostile.SHAPES:  # the pod rules of the server in memory are not those of a real one
        assert re.search(case.says, said)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)
paths = st.sampled_from(hostile.PATHS)
quantities = st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,12})?", fullmatch=True)

EXAMPLES = int(os.environ.get("PADDLEJOB_SEEDS", "300")) // 10
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@FUZZ
@given(path=paths, value=anything, gang=st.booleans())
def test_no_value_of_a_template_harms_another_job(path, value, gang):
    play(hostile.shaped(value, *path, gang=gang), volcano=True)


@FUZZ
@given(text=quantities, field=st.sampled_from(["requests", "limits", "least"]))
@example(text="1e999999999", field="requests")
def test_no_quantity_harms_another_job(text, field):
    case = hostile.least(text) if field == "least" else hostile.quantity(text, field=field)
    play(case, volcano=True)


def test_the_bound_is_the_time_of_a_job_alone():
    play(hostile.hostile(job().worker(1)), volcano=False)
