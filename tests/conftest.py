"""One real control plane for all tests that ask for it, and the programs that tests ask for."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from devcluster import Cluster, ControlPlane, ensure
from devcluster.build.programs import API_SERVER_PROGRAMS
from devcluster.control_plane.background import Background

PROGRAM_OF = {"kubectl": "kubectl", "helm": "helm", "old_server": "apiextensions-apiserver"}
"""Fixtures, and the programs that they run beside the API server."""

# The same examples on every machine, and no limit on the time that a loaded one takes: a test has its own.
settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=int(os.environ.get("PADDLEJOB_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("random", settings.get_profile("repeatable"), derandomize=False, print_blob=True)
settings.load_profile("repeatable")

# Programs under test begin as from a person's shell: readline, which pytest imports, sets the size of a
# terminal that is not there for xdist's processes, and what a script starts in the background ignores SIGINT.
for variable in ("COLUMNS", "LINES"):
    os.environ.pop(variable, None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Collected items live until the end; searching them for garbage takes a quarter of the time of collection.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need more than the API server; keep those of a cluster of their own in one process."""
    for item in items:
        fixtures = set(_fixtures(item))
        if PROGRAM_OF.keys() & fixtures:
            item.add_marker("tools")
        if "control_plane" not in fixtures:
            item.add_marker(pytest.mark.xdist_group(item.path.name))


if os.environ.get("PADDLEJOB_TEST_LOOP") == "uvloop":
    import uvloop

    def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
        """Run the tests that need a real event loop on uvloop: make test-unit LOOP=uvloop."""
        return {"uvloop": uvloop.new_event_loop}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a first build takes minutes, a test's time limit does not."""
    gc.freeze()
    gc.enable()
    programs = _programs(session.items)
    if not programs or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        ensure(programs)


def _programs(items: Iterable[pytest.Item]) -> list[str]:
    asked = {name for item in items for name in _fixtures(item)}
    needs_server = any(item.get_closest_marker("apiserver") for item in items)
    tools = [program for fixture, program in PROGRAM_OF.items() if fixture in asked]
    return [*(API_SERVER_PROGRAMS if needs_server else ()), *tools]


SECRETS = re.compile(
    r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"  # a token of a service account
    r"|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"
    r"|\bplanted-[\w-]*"  # what a test has put where a secret is
)
"""What no test may find in an output of ours, or print itself."""
MAX_LOG_LENGTH = 1 << 20


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Search what every test printed and logged, here and to files, for secrets."""
    report = yield
    if call.when == "teardown" and report.passed:
        for name, text in (*report.sections, *_logs(item)):
            if found := SECRETS.search(text):
                report.outcome = "failed"
                report.longrepr = f"a secret is in {name}: {found[0][:40]}..."
    return report


def _logs(item: pytest.Item) -> Iterator[tuple[str, str]]:
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    for path in sorted(folder.rglob("*.log")) if isinstance(folder, Path) else ():
        if path.is_file() and path.stat().st_size <= MAX_LOG_LENGTH:
            yield str(path), path.read_text(errors="replace")


def _fixtures(item: pytest.Item) -> Iterable[str]:
    return getattr(item, "fixturenames", ())


@pytest.fixture(scope="session", autouse=True)
def _kubectl_is_asked_for(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse kubectl in a run in which no test asked for it: it would be built in the middle of a test."""
    items = request.session.items
    if any("kubectl" in _fixtures(item) or item.get_closest_marker("node") for item in items):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "kubectl", _refuse_kubectl)
        yield


def _refuse_kubectl(*_: Any, **__: Any) -> NoReturn:
    pytest.fail("a test that runs kubectl must use the fixture `kubectl`")


@pytest.fixture(scope="session")
def kubectl() -> None:
    """Say that a test runs Cluster.kubectl, so that the program is built before the first test."""
    ensure(["kubectl"])


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster; the workers of a parallel run share one, which ends with the run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared_by_the_run = tmp_path_factory.getbasetemp().parent
        yield Background(shared_by_the_run / "control-plane").up(owner_pid=os.getppid())
        return
    with ControlPlane.start() as plane:
        yield plane


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A fresh namespace that is ready for pods."""
    body = {"metadata": {"generateName": "test-"}}
    name = control_plane.request("POST", "/api/v1/namespaces", body)["metadata"]["name"]
    path = f"/api/v1/namespaces/{name}"
    # Pods are refused until the controller has made the namespace's service account.
    control_plane.await_found(f"{path}/serviceaccounts/default")
    yield name
    control_plane.request("DELETE", path)
