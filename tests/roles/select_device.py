"""Run by a real Paddle in the environment of one pod: prints the device that init_parallel_env selects.

select_device.py BUILD    makes this Paddle for the CPU answer like one for `gpu`, `xpu` or a custom device
"""

import sys

import paddle.distributed.parallel as parallel


class SelectedError(Exception):
    """Ends init_parallel_env when it has checked the environment and selects the device."""


def select(*device: object) -> None:
    raise SelectedError(*device)


build, core = sys.argv[1], parallel.core
core.is_compiled_with_cuda = lambda: build == "gpu"
core.is_compiled_with_xpu = lambda: build == "xpu"
parallel.get_all_custom_device_type = lambda: [] if build in ("gpu", "xpu") else [build]
core.CUDAPlace = lambda number: select("gpu", number)
core.XPUPlace = lambda number: select("xpu", number)
core.CustomPlace = select
try:
    parallel.init_parallel_env()
except SelectedError as selected:
    print("SELECTED {}:{}".format(*selected.args))
