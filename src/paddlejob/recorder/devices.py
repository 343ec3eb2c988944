"""GPUs that a container holds and its Paddle cannot use."""

from __future__ import annotations

import os
import re
from typing import Any, Mapping

NO_DEVICES = ("", "none", "void", "-1")


def idle_gpus(paddle: Any, environ: Mapping[str, str] = os.environ, devices: str = "/dev") -> str:
    """Return a sentence if this container was given GPUs and its Paddle was built for the CPU only."""
    # Images with CUDA set the first variable also without a GPU; a laptop has the files also for other jobs.
    given = environ.get("NVIDIA_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES", ""))
    files = [name for name in os.listdir(devices) if re.match("nvidia[0-9]+$", name)]
    if given in NO_DEVICES or not files or paddle.is_compiled_with_cuda():
        return ""
    return (
        "paddlejob: this container holds %d x nvidia.com/gpu, but its Paddle %s was built for the CPU only; "
        "use an image with paddlepaddle-gpu" % (len(files), paddle.__version__)
    )
