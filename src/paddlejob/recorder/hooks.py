"""Hooks on Paddle 2.4 to 3.x, dygraph and static: where a step ends, a loss is known, a phase changes."""

from __future__ import annotations

import functools
import importlib.abc
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any, Callable

from .devices import idle_gpus
from .progress import EVALUATING, SAVING, TRAINING, Progress
from .sender import Sender

PROGRAMS_REMEMBERED = 64
COLLECTIVES = (
    *("all_gather", "all_gather_object", "all_reduce", "alltoall", "alltoall_single", "barrier", "broadcast"),
    *("broadcast_object_list", "gather", "recv", "reduce", "reduce_scatter", "scatter"),
    *("scatter_object_list", "send"),
)
"""Where ranks wait for each other outside of backward and the optimizer."""


def install(progress: Progress, sender: Sender) -> None:
    """Wait for `import paddle`, and hook it then."""
    if sender.is_on:
        sys.meta_path.insert(0, _Finder(_Hooks(progress, sender)))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds paddle as the other finders do, with the hooks set after its code has run."""

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
            # Only now: programs also look for paddle without importing it.
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
        """Loss that a GradScaler has scaled for the next backward."""
        self._trains: dict[int, tuple[weakref.ref[Any], bool]] = {}
        """Programs by their ids, which are those of others once they are gone."""

    def set(self, paddle: Any) -> None:
        """Set every hook that this version of Paddle has a place for."""
        self._paddle = paddle
        self._hook_optimizers(paddle.optimizer.Optimizer)
        _replace(paddle.Tensor, "backward", self._backward)
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
        if sentence := idle_gpus(paddle):
            print(sentence, file=sys.stderr, flush=True)

    # --- dygraph

    def _hook_optimizers(self, base: Any) -> None:
        """Hook the base class, its subclasses, and those yet to be defined."""
        self._hook_optimizer(base)

        def init_subclass(cls: Any, /, **options: Any) -> None:
            super(base, cls).__init_subclass__(**options)
            with self.sender.guard():
                self._hook_optimizer(cls)

        base.__init_subclass__ = classmethod(init_subclass)

    def _hook_optimizer(self, cls: Any) -> None:
        if "set_state_dict" in cls.__dict__:
            _replace(cls, "set_state_dict", self._resume)
        for name in ("step", "minimize"):
            if name in cls.__dict__:
                _replace(cls, name, self._step)
        for subclass in cls.__subclasses__():
            self._hook_optimizer(subclass)

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
            # A static graph is only built here; its steps are those of the executor.
            if not self._is_dynamic():
                return original(*arguments, **options)
            return self._timed(original, arguments, options, steps=1)

        return step

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensor: Any, *arguments: Any, **options: Any) -> Any:
            result = self._timed(original, (tensor, *arguments), options)
            with self.sender.guard():
                unscaled, self._unscaled = self._unscaled, None
                if tensor.size == 1:
                    self.progress.read_loss(lambda: tensor if unscaled is None else unscaled)
            return result

        return backward

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the loss as it is before the scale of mixed precision, without its graph."""

        @functools.wraps(original)
        def scale(*arguments: Any, **options: Any) -> Any:
            with suppress(Exception):
                if self._is_dynamic():
                    self._unscaled = (*arguments, *options.values())[1].detach()
            return original(*arguments, **options)

        return scale

    def _collective(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*arguments: Any, **options: Any) -> Any:
            # In a static graph it is only written down here; and only the main thread's time is counted.
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
        """Return whether a program computes gradients; each program is examined once."""
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
        """Learn from `Model.fit` how many steps there will be."""

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
            # Also before the first step: a rank may wait in it for another one.
            self.sender.wake()
        try:
            return original(*arguments, **options)
        finally:
            with self.sender.guard():
                self.progress.leave(steps=steps)
                self.sender.wake()


def _fetched_loss(fetched: Any, results: Any) -> Any:
    """Return the loss among the results of a program: the one with that name, or the first number."""
    if not isinstance(fetched, (list, tuple)):
        fetched = [fetched]
    # The name comes first: an accuracy may be fetched before the loss.
    pairs = zip(fetched, results or ())  # noqa: B905  (Python 3.8 has no strict)
    by_name = sorted(pairs, key=lambda pair: "loss" not in _name(pair[0]))
    return next((value for _, value in by_name if getattr(value, "size", 0) == 1), None)


def _name(fetched: Any) -> str:
    """Return the name of what is fetched; most values of Paddle 3 have none, and say so by an error."""
    try:
        return str(getattr(fetched, "name", fetched)).lower()
    except ValueError:
        return ""


def _replace(place: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace an attribute where this version of Paddle has it."""
    original = getattr(place, name, None)
    if original is not None:
        setattr(place, name, wrap(original))
