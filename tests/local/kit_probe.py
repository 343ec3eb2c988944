"""Runs the real cli.py of a kit, which then starts this file in place of the kit's trainer.

    kit_probe.py erniekit|paddleformers.cli     calls main() of its cli.py as `train config.yaml`
    kit_probe.py train config.yaml              started by Paddle's launcher; prints one JSON object

The other modules of the kit are replaced: in the wheel of ERNIEKit, they import `ernie`, which no wheel has.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class Replacements:
    """Finds an empty module for each part of a kit except cli.py and the helpers of cli.py."""

    def __init__(self, package: str) -> None:
        self._replaced = re.compile(re.escape(package) + r"\.(chat|eval|export|launcher|train|webui)\b")

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if self._replaced.match(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Replaced(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = __file__


class Replaced(ModuleType):
    """Has every function that is imported from it."""

    def __getattr__(self, name: str) -> object:
        if not name.startswith("run_"):
            raise AttributeError(name)
        return print


def start(package: str) -> None:
    sys.meta_path.insert(0, Replacements(package))
    sys.argv[1:] = ["train", "config.yaml"]
    importlib.import_module(f"{package}.cli").main()


def probe() -> None:
    import paddle
    from paddle import distributed

    launcher = Path(f"/proc/{os.getppid()}")
    words, variables = ((launcher / each).read_text().split("\0") for each in ("cmdline", "environ"))
    distributed.init_parallel_env()
    total = paddle.to_tensor([distributed.get_rank() + 1])
    distributed.all_reduce(total)
    print(
        json.dumps(
            {
                "world_size": distributed.get_world_size(),
                "sum": total.item(),
                "launcher": " ".join(words),
                "environ": dict(each.split("=", 1) for each in variables if each),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    probe() if sys.argv[1] == "train" else start(sys.argv[1])
