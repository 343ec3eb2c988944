"""Which resources count as accelerators: all with a domain but those that are known to be something else."""

from __future__ import annotations

import pytest

from paddlejob.api.v1 import RoleSpec
from paddlejob.core.accelerators import accelerators, is_accelerator

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
    template = {"spec": {"containers": [{"name": "paddle", "resources": resources}]}}
    assert accelerators(RoleSpec(replicas=1, template=template)) == expected
