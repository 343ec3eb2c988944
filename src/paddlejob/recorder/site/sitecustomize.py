"""Starts the recorder if this directory is on PYTHONPATH, then the user's own sitecustomize."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_next() -> None:
    """Run the sitecustomize that this module hides."""
    others = [path for path in sys.path if os.path.abspath(path) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start_recorder() -> None:
    """Load the recorder package from the parent directory, under a private name and the public one."""
    package = os.path.dirname(_HERE)
    name = "paddlejob_recorder"
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = sys.modules["paddlejob.recorder"] = module
    if os.environ.get("PADDLEJOB_ATTEND_URL") and os.getpid() == 1:
        _supervise(package)
    if os.environ.get("PADDLEJOB_PARKED_PIPE"):
        importlib.import_module(name + ".parked").wait_for_turn()
    spec.loader.exec_module(module)
    module.start()


def _supervise(package: str) -> None:
    """Stay as PID 1, and let a child run the program; without that the program runs in this process."""
    try:
        # Before the package's own code, which belongs to the process that trains.
        importlib.import_module("paddlejob_recorder.supervisor").supervise(package)
    except Exception as error:
        print("paddlejob supervisor is off: %s: %s" % (type(error).__name__, error), file=sys.stderr)


try:
    _start_recorder()
except Exception as error:
    print("paddlejob recorder is off: %s: %s" % (type(error).__name__, error), file=sys.stderr)
_run_next()
