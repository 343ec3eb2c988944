"""Jobs that ask for accelerators, on machines with and without."""

from __future__ import annotations

import pytest

from local.jobs import container, job, role, text
from paddlejob.local.errors import InputError
from paddlejob.local.input.accelerators import provide
from paddlejob.local.input.documents import read
from paddlejob.local.input.interpreter import Interpreter


def asking(amount, resource="nvidia.com/gpu", workers=2):
    one = container(
        "true", resources={"limits": {resource: amount, "cpu": "1"}, "requests": {resource: amount}}
    )
    return read(text(job(worker=role(workers, containers=[one])))).job


@pytest.fixture
def devices(tmp_path):
    def make(count):
        for number in range(count):
            (tmp_path / f"nvidia{number}").touch()
        (tmp_path / "nvidiactl").touch()
        return tmp_path

    return make


def test_without_accelerators_the_job_runs_on_the_cpu_and_says_so(devices):
    provision = provide(asking(1), strict=False, devices=devices(0))
    assert provision.note == "the job asks for 2 x nvidia.com/gpu, this machine has 0: it runs on the CPU"
    assert provision.visible == {"job-worker-0": "", "job-worker-1": ""}
    resources = provision.job.spec.worker.template["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "1"}, "requests": {}}


def test_strict_refuses_missing_accelerators(devices):
    with pytest.raises(InputError, match="this machine has 1; without --strict"):
        provide(asking(1), strict=True, devices=devices(1))


def test_each_pod_sees_its_own_devices(devices):
    provision = provide(asking(2), strict=True, devices=devices(4))
    assert provision.visible == {"job-worker-0": "0,1", "job-worker-1": "2,3"}
    assert provision.note == ""


CPU_ONLY = Interpreter("/p/bin/python", "--python", "3.3.1", is_cpu_only=True)
IDLE = (
    "the job holds 2 x nvidia.com/gpu, but Paddle 3.3.1 of /p/bin/python (--python) was built for the "
    "CPU only; install paddlepaddle-gpu"
)


def test_gpus_with_a_cpu_only_paddle_are_reported(devices):
    provision = provide(asking(1), strict=False, python=CPU_ONLY, devices=devices(2))
    assert (provision.note, provision.visible["job-worker-1"]) == (IDLE, "1")
    with pytest.raises(InputError) as refusal:
        provide(asking(1), strict=True, python=CPU_ONLY, devices=devices(2))
    assert str(refusal.value) == IDLE


def test_a_paddle_for_gpus_uses_them(devices):
    with_cuda = Interpreter("/p/bin/python", "--python", "3.3.1")
    assert provide(asking(1), strict=True, python=with_cuda, devices=devices(2)).note == ""


def test_accelerators_of_other_vendors_are_not_assigned(devices):
    assert (
        "huawei.com/Ascend910"
        in provide(asking(1, "huawei.com/Ascend910"), strict=False, devices=devices(4)).note
    )


def test_a_job_without_accelerators_is_unchanged(devices):
    plain = read(text(job())).job
    assert provide(plain, strict=True, devices=devices(0)).job is plain


async def test_the_gpu_job_of_the_docs_gets_the_cpu_communication_library(finish):
    one = container(
        "echo $PADDLE_DISTRI_BACKEND[$CUDA_VISIBLE_DEVICES]", resources={"limits": {"amd.com/gpu": 1}}
    )
    run = await finish(job(worker=role(2, containers=[one])))
    assert run.log("worker-0") == "gloo[]\n"
    assert "it runs on the CPU" in run.session.record.notes[0]
