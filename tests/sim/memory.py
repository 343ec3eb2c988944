"""The memory that an operator holds for the objects of a tenant stays below its bound.

Sizes are measured on the Python objects themselves. The operator's own accounting is compared with them.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import msgspec

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from paddlejob.operator.limits import PackedParts
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer
from simkube.operator import Operator

PACKED_BYTES = 512 << 10
"""The budget for encoded specs in a history: three fat jobs exceed it."""
PACKED_ERROR = 1.1
"""How much more than its own account the budget may really hold, in addition to `TABLE_BYTES`."""
TABLE_BYTES = 4 << 10
"""Dictionaries of a budget that holds few parts."""
IDLE_BYTES = 256 << 10
"""An operator without any object, not counting modules and classes."""
OBJECT_BYTES = 12 << 10
"""Bound for each object in a cache; operator/test_fat_objects.py checks it for each kind of object."""
KINDS = (PADDLE_JOBS, PODS, SERVICES, CONFIG_MAPS)
LOOK_SECONDS = 30.0

_NOT_HELD = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType),
    *(asyncio.Future, asyncio.Task, asyncio.Handle, CoroutineType, GeneratorType, AsyncGeneratorType),
    Client,
)
"""Types that are not followed: shared objects, running tasks, and the simulated server."""


class MemoryExceededError(AssertionError):
    """An operator holds more memory than its bound."""


class Memory:
    """Measures the operators of a history."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._operators: dict[int, Operator] = {}
        self.largest = 0
        """Most bytes that an operator held."""
        self.largest_packed = 0
        server.log.on_write.append(self._check_packed)

    def watch(self, number: int, operator: Operator) -> None:
        """Measure an operator from now on, in place of an earlier one with this number."""
        # The budget is cut, so that a few objects of a history exceed it.
        operator.controller.state._packed = PackedParts(PACKED_BYTES)
        self._operators[number] = operator

    async def look(self) -> None:
        """Measure everything now and then until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.check()

    def check(self) -> None:
        """Raise MemoryExceededError if an operator holds too much."""
        objects = sum(len(self._server.objects(kind)) for kind in KINDS)
        bound = IDLE_BYTES + PACKED_BYTES + OBJECT_BYTES * objects
        for operator in self._operators.values():
            held = held_bytes(operator.controller)
            self.largest = max(self.largest, held)
            if held > bound:
                raise MemoryExceededError(f"{held} bytes for {objects} objects are more than {bound}")

    def _check_packed(self, write: WriteRecord) -> None:
        if write.resource not in (PADDLE_JOBS.plural, CONFIG_MAPS.plural):
            return
        for operator in self._operators.values():
            packed = operator.controller.state._packed
            held = held_bytes(packed._parts)
            self.largest_packed = max(self.largest_packed, held)
            if packed.size > PACKED_BYTES:
                raise MemoryExceededError(f"{packed.size} bytes of parts are more than {PACKED_BYTES}")
            if held > PACKED_ERROR * packed.size + TABLE_BYTES:
                raise MemoryExceededError(f"{held} bytes of parts, but its own account is {packed.size}")


def held_bytes(root: object) -> int:
    """Return the bytes of an object and of everything that it refers to."""
    loop = asyncio.get_running_loop()
    seen = {id(loop): None}
    total, left = 0, [root]
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, _NOT_HELD):
            continue
        seen[id(found)] = found
        total += memoryview(found).nbytes if isinstance(found, msgspec.Raw) else sys.getsizeof(found)
        left += _referents(found)
    return total


def _referents(found: Any) -> Iterator[Any] | list[Any]:
    if isinstance(found, msgspec.Struct):
        # The garbage collector does not know the fields of those with gc=False.
        return (getattr(found, field) for field in found.__struct_fields__)
    if isinstance(found, MethodType):
        return [found.__self__]
    return gc.get_referents(found)
