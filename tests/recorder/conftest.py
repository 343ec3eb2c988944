"""Containers with a supervisor, and an operator that they ask for orders."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddlejob.operator.reports import certificate
from paddlejob.operator.reports.certificate import Certificate
from tests.recorder.supervised import Container, Operator, Run, mount, start


@pytest.fixture(scope="module")
def made() -> Certificate:
    return asyncio.run(certificate._make("127.0.0.1"))


@pytest.fixture
async def operator(made: Certificate) -> AsyncIterator[Operator]:
    operator = Operator(made)
    async with operator.serve():
        yield operator


@pytest.fixture
def run(tmp_path: Path, made: Certificate, operator: Operator) -> Iterator[Run]:
    started: list[Container] = []

    def run(program: str | list[str], *, url: str | None = None, changes: str = "", **more: str) -> Container:
        directory = tmp_path / str(len(started))
        place = mount(directory, made, "a", changes)
        started.append(start(program, place, operator.url if url is None else url, directory, **more))
        return started[-1]

    yield run
    for each in started:
        each.destroy()
