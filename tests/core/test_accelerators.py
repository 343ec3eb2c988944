"""Which resources count as accelerators: all with a domain but those that are known to be something else."""

from __future__ import annotations

import pytest

from paddlejob.api.defaulting import effective
from paddlejob.api.v1 import RoleSpec
from paddlejob.core.accelerators import accelerators, idle_accelerators, is_accelerator, unlaunched_cards
from paddlejob.training.findings import IdleAccelerators
from simkube.build import job, snapshot

ACCELERATORS = [
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.5gb",
    "nvidia.com/gpumem",
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "huawei.com/Ascend910",
    "huawei.com/ascend-1980",
    "baidu.com/xpu",
    "kunlunxin.com/xpu",
    "cambricon.com/mlu",
    "hygon.com/dcu",
    "iluvatar.com/gpu",
    "metax-tech.com/gpu",
    "enflame.com/gcu",
    "biren.com/gpu",
    "birentech.com/1-4-gpu",
    "biren.com/br104",
    "mthreads.com/vgpu",
    "tencent.com/vcuda-core",
    "tencent.com/vcuda-memory",
    "tke.cloud.tencent.com/qgpu-core",
    "aliyun.com/ppu",
    "aliyun.com/gpu-mem",
    "volcano.sh/vgpu-number",
    "koordinator.sh/gpu-core",
    "deviceclass.resource.kubernetes.io/cards",
    "a-vendor-of-next-year.com/card",
]
OTHERS = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "hugepages-2Mi",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory",
    "rdma/hca",
    "rdma/rdma_shared_device_a",
    "mellanox.com/mlnx_sriov_rdma",
    "nvidia.com/hostdev",
    "intel.com/sriov_netdevice",
    "intel.com/intel_sriov_dpdk",
    "openshift.io/mlxnics",
    "vpc.amazonaws.com/efa",
    "vpc.amazonaws.com/pod-eni",
    "networking.gke.io.networks/storage.IP",
    "aliyun/eni",
    "aliyun/erdma",
    "tke.cloud.tencent.com/eni-ip",
    "vke.volcengine.com/rdma",
    "koordinator.sh/rdma",
    "qat.intel.com/cy",
    "sgx.intel.com/epc",
    "xilinx.com/fpga-u250",
    "github.com/fuse",
    "smarter-devices/fuse",
    "squat.ai/input",
    "devices.kubevirt.io/kvm",
]


@pytest.mark.parametrize("name", ACCELERATORS)
def test_an_accelerator_is(name):
    assert is_accelerator(name)


@pytest.mark.parametrize("name", OTHERS)
def test_none_is(name):
    assert not is_accelerator(name)


RESOURCES = {
    "none": ({}, set()),
    "in limits": ({"limits": {"nvidia.com/gpu": 1, "cpu": 2}}, {"nvidia.com/gpu"}),
    "in requests": ({"requests": {"huawei.com/Ascend910": 8}}, {"huawei.com/Ascend910"}),
    "as text": ({"limits": {"baidu.com/xpu": "2"}}, {"baidu.com/xpu"}),
    "zero": ({"limits": {"nvidia.com/gpu": 0}}, set()),
    "beside a network card": ({"limits": {"rdma/hca": 1, "google.com/tpu": 4}}, {"google.com/tpu"}),
    "a resource claim": ({"claims": [{"name": "device"}]}, {"claim/device"}),
}


@pytest.mark.parametrize(("resources", "expected"), RESOURCES.values(), ids=RESOURCES.keys())
def test_a_container_asks_for(resources, expected):
    assert accelerators(asking(resources)) == expected


def asking(resources) -> RoleSpec:
    template = {"spec": {"containers": [{"name": "paddle", "resources": resources}]}}
    return RoleSpec(replicas=1, template=template)


GPU = (
    "holds 2 x nvidia.com/gpu, but its Paddle was built for the CPU only; use an image with paddlepaddle-gpu"
)
SAID_BY_CPU_PADDLE = [
    "ValueError: The device should not be 'gpu', since PaddlePaddle is not compiled with CUDA",
    "E1116 22852 place.cc:350] Cannot use GPU because you have installed CPU version PaddlePaddle.",
    "ValueError: The API paddle.device.cuda.get_device_name is not supported in CPU-only PaddlePaddle.",
    "AssertionError: Not compiled with CUDA",
    "Config use_gpu cannot be set as true while you are using paddlepaddle cpu version !",
    "Config use_gpu cannot be set as true while your paddle is not compiled with cuda !",
    "this container holds 1 x nvidia.com/gpu, but its Paddle 3.3.1 was built for the CPU only; use an image",
]


@pytest.mark.parametrize("line", SAID_BY_CPU_PADDLE)
def test_the_log_of_a_cpu_paddle_shows_that_gpus_are_idle(line):
    log = f"epoch 1\n{line}\nbye\n"
    assert idle_accelerators(asking({"limits": {"nvidia.com/gpu": 2, "cpu": 1}}), log) == GPU
    assert idle_accelerators(asking({"limits": {"cpu": 1}}), log) == ""
    # Of a GPU of another vendor, which Paddle uses through a plug-in, the words about CUDA say nothing.
    assert idle_accelerators(asking({"limits": {"iluvatar.com/gpu": 1}}), log) == ""


XPU = "ValueError: The device should not be 'xpu', since PaddlePaddle is not compiled with XPU"
OTHER_LOGS = {
    "nothing": ({"nvidia.com/gpu": 1}, "epoch 1\n", ""),
    "another framework": ({"nvidia.com/gpu": 1}, "AssertionError: Torch not compiled with CUDA enabled", ""),
    "a card of another kind": ({"nvidia.com/gpu": 1}, XPU, ""),
    "an XPU": ({"kunlunxin.com/xpu": "4"}, XPU, "paddlepaddle-xpu"),
    "an XPU that a program for GPUs got": ({"kunlunxin.com/xpu": 1}, SAID_BY_CPU_PADDLE[0], ""),
    "a part of a GPU": ({"nvidia.com/mig-1g.5gb": 1}, SAID_BY_CPU_PADDLE[0], "paddlepaddle-gpu"),
    "a virtual GPU": ({"volcano.sh/vgpu-number": 1}, SAID_BY_CPU_PADDLE[0], "paddlepaddle-gpu"),
}


@pytest.mark.parametrize(("limits", "log", "package"), OTHER_LOGS.values(), ids=OTHER_LOGS.keys())
def test_which_package_is_advised(limits, log, package):
    [(name, amount)] = limits.items()
    told = idle_accelerators(asking({"limits": limits}), log)
    assert told.startswith(f"holds {amount} x {name}, ") is bool(package)
    assert told.endswith(package)


MISSHAPEN = ["x", 3, [], [3], [{"resources": "x"}], [{"resources": {"limits": ["nvidia.com/gpu"]}}]]


@pytest.mark.parametrize("containers", MISSHAPEN)
def test_of_a_misshapen_template_nothing_is_told(containers):
    misshapen = RoleSpec(replicas=1, template={"spec": {"containers": containers}})
    assert idle_accelerators(misshapen, SAID_BY_CPU_PADDLE[0]) == ""


def test_a_failure_says_that_the_gpu_was_idle():
    limits = {"resources": {"limits": {"nvidia.com/gpu": 2}}}
    words = "Traceback\nCannot use GPU because you have installed CPU version PaddlePaddle.\nUse CPUPlace()."
    status = snapshot(job().worker(1, **limits)).pods_running().formed().failed("worker", 0, message=words)
    [message] = {(plan := status.plan()).status.message, plan.status.last_failure.message}
    assert message == f"worker-0 exited with code 1: Use CPUPlace().; it {GPU}"


def test_a_running_job_says_that_its_gpu_is_idle():
    built = snapshot(job().worker(1)).pods_running().formed()
    built.findings = (IdleAccelerators("", f"worker-0 {GPU}"),)
    assert built.plan().status.message == f"1 worker running; worker-0 {GPU}"


LAUNCH = ["python", "-m", "paddle.distributed.launch", "train.py"]
UNLAUNCHED = {
    "a program": ({"command": ["python", "train.py"]}, "nvidia.com/gpu", 8, True),
    "a program with flags": ({"command": ["python3.11", "-u", "/app/train.py"]}, "nvidia.com/gpu", "2", True),
    "a program in a shell": ({"command": ["sh", "-c", "cd x && python train.py"]}, "baidu.com/xpu", 16, True),
    "a program in the arguments": (
        {"command": ["sh", "-c"], "args": ["python train.py"]},
        *("huawei.com/Ascend910", 8, True),
    ),
    "one card": ({"command": ["python", "train.py"]}, "nvidia.com/gpu", 1, False),
    "a part of a card": ({"command": ["python", "train.py"]}, "nvidia.com/gpumem", 8000, False),
    "a malformed amount": ({"command": ["python", "train.py"]}, "nvidia.com/gpu", "8e", False),
    "the launcher": ({"command": LAUNCH}, "nvidia.com/gpu", 8, False),
    "an old launcher": ({"command": ["fleetrun", "train.py"]}, "nvidia.com/gpu", 8, False),
    "a launcher in a shell": (
        {"command": ["sh", "-c", f"python prepare.py; {' '.join(LAUNCH)}"]},
        *("nvidia.com/gpu", 8, False),
    ),
    "a script": ({"command": ["bash", "run.sh"]}, "nvidia.com/gpu", 8, False),
    "a module": ({"command": ["python", "-m", "tool", "train.py"]}, "nvidia.com/gpu", 8, False),
    "a kit": ({"command": ["paddleformers-cli", "train", "sft.yaml"]}, "nvidia.com/gpu", 8, False),
    "an image with an unknown entrypoint": ({}, "nvidia.com/gpu", 8, False),
    "arguments of an unknown entrypoint": ({"args": ["python", "train.py"]}, "nvidia.com/gpu", 8, False),
    "a malformed command": ({"command": "python train.py"}, "nvidia.com/gpu", 8, False),
}


@pytest.mark.parametrize(
    ("container", "resource", "amount", "is_told"), UNLAUNCHED.values(), ids=UNLAUNCHED.keys()
)
def test_several_cards_and_one_process(container, resource, amount, is_told: bool):
    for of in (job().worker(1, **container), job().worker(2, **container)):
        of.manifest["spec"]["worker"]["template"]["spec"]["containers"][0]["resources"] = {
            "limits": {resource: amount}
        }
        told = unlaunched_cards(effective(of.build().spec))
        assert told.startswith(f"each worker requests {amount} x {resource}, but") is is_told
        assert bool(told) is is_told


def test_a_trainer_of_parameter_servers_may_use_all_its_cards():
    of = job().ps(1).worker(1, command=["python", "a.py"], resources={"limits": {"nvidia.com/gpu": 8}})
    assert unlaunched_cards(effective(of.build().spec)) == ""
    assert unlaunched_cards(effective(job().build().spec)) == ""
