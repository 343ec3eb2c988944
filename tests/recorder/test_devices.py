"""GPUs that a container holds and its Paddle cannot use."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paddlejob.recorder.hooks import idle_gpus

SENTENCE = (
    "paddlejob: this container holds 2 x nvidia.com/gpu, but its Paddle 3.3.1 was built for the CPU only; "
    "use an image with paddlepaddle-gpu"
)
CARDS = ("nvidia0", "nvidia1", "nvidiactl", "null")
CASES = {
    "GPUs of a cluster": ({"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-7"}, CARDS, False, SENTENCE),
    "GPUs of a laptop": ({"CUDA_VISIBLE_DEVICES": "0,1"}, CARDS, False, SENTENCE),
    "a Paddle that can use them": ({"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, CARDS, True, ""),
    "a job on a laptop that asked for none": ({}, CARDS, False, ""),
    "an image for GPUs on a node without": ({"NVIDIA_VISIBLE_DEVICES": "all"}, ("null",), False, ""),
    "GPUs that were taken away": ({"NVIDIA_VISIBLE_DEVICES": "void"}, CARDS, False, ""),
}


@pytest.mark.parametrize(("environ", "files", "with_cuda", "sentence"), CASES.values(), ids=CASES)
def test_only_unusable_gpus_are_reported(tmp_path, environ, files, with_cuda, sentence):
    for name in files:
        (tmp_path / name).touch()
    paddle = SimpleNamespace(is_compiled_with_cuda=lambda: with_cuda, __version__="3.3.1")
    assert idle_gpus(paddle, environ, str(tmp_path)) == sentence
