"""Hooks into Paddle 2.4 to 3.x, dygraph and static graph, for steps, losses and phases."""

from __future__ import annotations

import functools
import importlib.abc
import os
import re
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any, Callable, Mapping

from . import rendezvous
from .progress import EVALUATING, SAVING, TRAINING, Progress
from .sender import Sender

PROGRAMS_REMEMBERED = 64
NO_DEVICES = ("", "none", "void", "-1")
COLLECTIVES = (
    *("all_gather", "all_gather_object", "all_reduce", "alltoall", "alltoall_single", "barrier", "broadcast"),
    *("broadcast_object_list", "gather", "recv", "reduce", "reduce_scatter", "scatter"),
    *("scatter_object_list", "send"),
)
"""Functions in which ranks wait for each other, besides backward and the optimizer."""
FLEET = "paddle.distributed.fleet."
HYBRID_OPTIMIZER = FLEET + "meta_optimizers.dygraph_optimizer.hybrid_parallel_optimizer"
PARALLEL_MODELS = FLEET + "meta_parallel.meta_parallel_base"
PIPELINE_TRANSFERS = FLEET + "meta_parallel.pp_utils.p2p_communication"

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def install(progress: Progress, sender: Sender) -> None:
    """Set the hooks when the program imports paddle."""
    if not sender.is_on:
        return
    if "paddle" in sys.modules:
        # This process was parked.
        with sender.guard():
            _Hooks(progress, sender).set(sys.modules["paddle"])
    else:
        sys.meta_path.insert(0, _Finder(_Hooks(progress, sender)))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds paddle through the other finders, and sets the hooks after its code has run."""

    def __init__(self, hooks: _Hooks) -> None:
        self._hooks = hooks

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname == "paddle":
            with self._hooks.sender.guard():
                return self._find_hooked(path, target)
        return None

    def _find_hooked(self, path: Any, target: Any) -> Any:
        specs = (finder.find_spec("paddle", path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_hook(module: Any) -> None:
            # Not in find_spec: programs also look for paddle without importing it.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            with self._hooks.sender.guard():
                self._hooks.set(module)

        vars(spec.loader)["exec_module"] = execute_and_hook
        return spec


class _Hooks:
    def __init__(self, progress: Progress, sender: Sender) -> None:
        self.progress = progress
        self.sender = sender
        self._paddle: Any = None
        self._unscaled: Any = None
        """The loss before a GradScaler scaled it for the next backward."""
        self._is_in_pipeline = False
        self._trains: dict[int, tuple[weakref.ref[Any], bool]] = {}
        """Programs by id(); the reference detects an id that was reused."""

    def set(self, paddle: Any) -> None:
        """Set the hooks that this version of Paddle supports."""
        self._paddle = paddle
        self.progress.startup.note_import()
        self._hook_optimizers(paddle.optimizer.Optimizer)
        self._hook_pipelines()
        for place in (paddle.Tensor, paddle.autograd):
            _replace(place, "backward", self._backward)
        _replace(paddle.amp.GradScaler, "scale", self._scale)
        _replace(paddle.static.Executor, "run", self._executor_run)
        _replace(paddle.static.Executor, "train_from_dataset", self._section)
        _replace(paddle.nn.Layer, "eval", functools.partial(self._phase, EVALUATING))
        _replace(paddle.nn.Layer, "train", functools.partial(self._phase, TRAINING))
        _replace(paddle.io.DataLoader, "__iter__", self._data_loader)
        for place in (paddle, paddle.framework):
            _replace(place, "save", self._save)
        _replace(paddle.hapi.model, "config_callbacks", self._config_callbacks)
        for name in COLLECTIVES:
            _replace(paddle.distributed, name, self._collective)
        fleet = getattr(paddle.distributed, "fleet", None)
        for place, name in (
            (paddle.distributed, "init_parallel_env"),
            (fleet, "init"),
            (fleet, "init_worker"),
        ):
            _replace(place, name, self._join)
        # Paddle 2.6 and later: `init_parallel_env` and Fleet get the store here, in both kinds of graphs.
        _replace(getattr(paddle.framework, "core", None), "create_or_get_global_tcp_store", self._store)
        if sentence := idle_gpus(paddle):
            print(sentence, file=sys.stderr, flush=True)

    # --- dygraph

    def _hook_optimizers(self, base: Any) -> None:
        steps: dict[str, Wrap] = {"step": self._step, "minimize": self._step}
        self._hook_methods(_find(HYBRID_OPTIMIZER, "HybridParallelOptimizer"), steps)
        # An optimizer that shards its state calls this method of another optimizer, and not its `step`.
        self._hook_methods(base, {**steps, "_apply_optimize": self._step, "set_state_dict": self._resume})

    def _hook_pipelines(self) -> None:
        models = _find(PARALLEL_MODELS, "MetaParallelBase")
        self._hook_methods(models, {"forward_backward_pipeline": self._pipeline})
        # Paddle 2.4 has functions instead of the class.
        transfers = _find(PIPELINE_TRANSFERS, "P2pHelper") or sys.modules.get(PIPELINE_TRANSFERS)
        for name in dir(transfers):
            if name.startswith(("send_", "recv_")):
                _replace(transfers, name, self._collective)

    def _hook_methods(self, base: Any, wraps: dict[str, Wrap]) -> None:
        """Hook the methods that a class and its current and future subclasses define."""
        if base is None:
            return
        _replace_own(base, wraps)

        def init_subclass(cls: Any, /, **options: Any) -> None:
            super(base, cls).__init_subclass__(**options)
            with self.sender.guard():
                _replace_own(cls, wraps)

        base.__init_subclass__ = classmethod(init_subclass)

    def _resume(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def resume(*arguments: Any, **options: Any) -> Any:
            with self.sender.guard():
                self.progress.resume()
            return original(*arguments, **options)

        return resume

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(*arguments: Any, **options: Any) -> Any:
            # In a static graph this only builds the program; the executor runs the steps.
            if not self._is_dynamic():
                return original(*arguments, **options)
            return self._timed(original, arguments, options, steps=1)

        return step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(*arguments: Any, **options: Any) -> Any:
            result = self._timed(original, arguments, options)
            with self.sender.guard():
                # Recomputation calls backward inside backward.
                if not self.progress.is_waiting:
                    tensor, self._unscaled = self._unscaled, None
                    if tensor is None:
                        tensor = arguments[0] if arguments else options.get("tensors")
                    # In a pipeline it is the loss of a micro-batch.
                    if not self._is_in_pipeline:
                        self.progress.read_loss(lambda: _loss(tensor))
            return result

        return backward

    def _pipeline(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Read the stage, and the loss of the whole batch, which backward has only for a micro-batch."""

        @functools.wraps(original)
        def forward_backward_pipeline(model: Any, *arguments: Any, **options: Any) -> Any:
            with suppress(Exception):
                self.progress.stage = int(model._hcg.get_stage_id())  # noqa: SLF001
            before, self._is_in_pipeline = self._is_in_pipeline, True
            try:
                result = original(model, *arguments, **options)
            finally:
                self._is_in_pipeline = before
            with self.sender.guard():
                if self.progress.phase != EVALUATING:
                    self.progress.read_loss(lambda: _loss(result))
            return result

        return forward_backward_pipeline

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the loss before mixed precision scales it, without its graph."""

        @functools.wraps(original)
        def scale(*arguments: Any, **options: Any) -> Any:
            with suppress(Exception):
                if self._is_dynamic():
                    self._unscaled = (*arguments, *options.values())[1].detach()
            return original(*arguments, **options)

        return scale

    def _store(self, original: Callable[..., Any]) -> Callable[..., Any]:
        has_waited = False

        @functools.wraps(original)
        def create_or_get_global_tcp_store(*arguments: Any, **options: Any) -> Any:
            nonlocal has_waited
            if not has_waited:
                has_waited = True
                with self.sender.guard():
                    rendezvous.wait_for_master()
            return original(*arguments, **options)

        return create_or_get_global_tcp_store

    def _join(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def join(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            with self.sender.guard():
                self.progress.startup.note_join()
            return result

        return join

    def _collective(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*arguments: Any, **options: Any) -> Any:
            # In a static graph this only builds the program; and only the main thread's time is measured.
            if threading.current_thread() is not threading.main_thread() or not self._is_dynamic():
                return original(*arguments, **options)
            return self._timed(original, arguments, options)

        return collective

    # --- static graph and parameter servers

    def _section(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def section(*arguments: Any, **options: Any) -> Any:
            with self.sender.guard():
                self.progress.change_phase(TRAINING)
                self.sender.wake()
            return self._timed(original, arguments, options)

        return section

    def _executor_run(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run(executor: Any, program: Any = None, *arguments: Any, **options: Any) -> Any:
            trains = False
            with self.sender.guard():
                trains = self._is_training(program)
            if not trains:
                return original(executor, program, *arguments, **options)
            results = self._timed(original, (executor, program, *arguments), options, steps=1)
            with self.sender.guard():
                fetched = options.get("fetch_list", arguments[1] if len(arguments) > 1 else None)
                self.progress.read_loss(lambda: _fetched_loss(fetched, results))
            return results

        return run

    def _is_training(self, program: Any) -> bool:
        """Return whether a program computes gradients; the result is cached."""
        program = self._paddle.static.default_main_program() if program is None else program
        program = getattr(program, "_program", None) or program
        known = self._trains.get(id(program))
        if known is None or known[0]() is not program:
            if len(self._trains) >= PROGRAMS_REMEMBERED:
                self._trains.clear()
            names = (op.type if hasattr(op, "type") else op.name() for op in program.global_block().ops)
            known = weakref.ref(program), any(name.endswith("_grad") for name in names)
            self._trains[id(program)] = known
        return known[1]

    # --- phases, epochs and totals

    def _phase(self, phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def change(*arguments: Any, **options: Any) -> Any:
            with self.sender.guard():
                if self.progress.step:
                    self.progress.change_phase(phase)
            return original(*arguments, **options)

        return change

    def _save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(*arguments: Any, **options: Any) -> Any:
            before = self.progress.phase
            with self.sender.guard():
                self.progress.change_phase(SAVING)
            try:
                result = original(*arguments, **options)
            finally:
                with self.sender.guard():
                    self.progress.change_phase(before)
            self.progress.saved_step = self.progress.step
            return result

        return save

    def _data_loader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            with self.sender.guard():
                self.progress.begin_loader(id(getattr(loader, "dataset", loader)))
            return original(loader)

        return iterate

    def _config_callbacks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Get the total number of steps from `Model.fit`."""

        @functools.wraps(original)
        def config_callbacks(*arguments: Any, **options: Any) -> Any:
            with self.sender.guard():
                epochs, steps = options.get("epochs"), options.get("steps")
                if options.get("mode", "train") == "train" and epochs and steps:
                    self.progress.total = self.progress.step + epochs * steps
            return original(*arguments, **options)

        return config_callbacks

    def _is_dynamic(self) -> bool:
        with self.sender.guard():
            if self._paddle.in_dynamic_mode():
                return True
        return False

    def _timed(self, original: Callable[..., Any], arguments: Any, options: Any, *, steps: int = 0) -> Any:
        with self.sender.guard():
            self.progress.enter()
            # Also before the first step, in which a rank may already wait for another one.
            self.sender.wake()
        done = 0
        try:
            result = original(*arguments, **options)
            done = steps
        finally:
            with self.sender.guard():
                self.progress.leave(steps=done)
                self.sender.wake()
        return result


def _loss(value: Any) -> Any:
    """Return the one element of a loss, None if the value is not a loss."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if getattr(value, "size", 0) != 1:
        return None
    if not hasattr(value, "is_dist") or not value.is_dist():
        return value
    # Only the local part is read, because reading the whole tensor needs all ranks at the same time. The mean
    # over the rank's own data is a loss, as in data parallel training; a part of a sum is not.
    is_whole = all(each.is_replicated() or "AVG" in str(each) for each in value.placements)
    return value._local_value() if is_whole else None  # noqa: SLF001


def _fetched_loss(fetched: Any, results: Any) -> Any:
    """Return the loss among a program's results: the one with that name, or the first scalar."""
    if not isinstance(fetched, (list, tuple)):
        fetched = [fetched]
    # Prefer the name, because an accuracy may be fetched before the loss.
    pairs = zip(fetched, results or ())  # noqa: B905  (Python 3.8 has no strict)
    by_name = sorted(pairs, key=lambda pair: "loss" not in _name(pair[0]))
    return next((value for _, value in by_name if getattr(value, "size", 0) == 1), None)


def _name(fetched: Any) -> str:
    """Return the name of a fetched value; most values of Paddle 3 have none and raise ValueError."""
    try:
        return str(getattr(fetched, "name", fetched)).lower()
    except ValueError:
        return ""


def _find(module: str, name: str) -> Any:
    """Return a class of Paddle, None if this version does not have it."""
    return getattr(sys.modules.get(module), name, None)


def _replace_own(cls: Any, wraps: Mapping[str, Wrap]) -> None:
    """Replace methods in a class and its subclasses, each where it is defined."""
    for name, wrap in wraps.items():
        if name in vars(cls):
            _replace(cls, name, wrap)
    for subclass in cls.__subclasses__():
        _replace_own(subclass, wraps)


def _replace(place: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace an attribute if this version of Paddle has it."""
    original = getattr(place, name, None)
    if original is not None:
        setattr(place, name, wrap(original))


def idle_gpus(paddle: Any, environ: Mapping[str, str] = os.environ, devices: str = "/dev") -> str:
    """Return a warning if this container has GPUs but its Paddle is built for CPUs only."""
    # CUDA images set the first variable even without a GPU; a laptop has the device files of all jobs.
    given = environ.get("NVIDIA_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES", ""))
    files = [name for name in os.listdir(devices) if re.match("nvidia[0-9]+$", name)]
    if given in NO_DEVICES or not files or paddle.is_compiled_with_cuda():
        return ""
    return (
        "paddlejob: this container holds %d x nvidia.com/gpu, but its Paddle %s was built for the CPU only; "
        "use an image with paddlepaddle-gpu" % (len(files), paddle.__version__)
    )
