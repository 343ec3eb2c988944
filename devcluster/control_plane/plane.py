"""A control plane; its components are children of this process."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from devcluster.control_plane.cluster import Access, Cluster
from devcluster.control_plane.components import arguments
from devcluster.control_plane.provisioning import free_ports, provision
from devcluster.control_plane.readiness import PortTakenError, await_ready
from devcluster.control_plane.scratch import keep, make_scratch
from devcluster.errors import DevclusterError
from devcluster.node.cgroups import make_groups, remove_groups
from devcluster.node.link import LinkTakenError, choose_link
from devcluster.node.runtime import install_pause_image
from devcluster.processes import PROCESS_RECORDS, Child, Record, write_records
from devcluster.requirements import programs_for
from devcluster.settings import (
    COMPONENTS,
    DEFAULT_COMPONENTS,
    DEFAULT_CONTROLLERS,
    ON_THE_NODE,
    ClusterSettings,
    Layout,
)

PORT_ATTEMPTS = 3
START_TIMEOUT_SECONDS = 120.0


class ControlPlane(Cluster):
    """A control plane that lives in a `with` block and dies with this process, even on kill -9."""

    def __init__(
        self, access: Access, settings: ClusterSettings, layout: Layout, programs: Mapping[str, Path]
    ) -> None:
        super().__init__(access)
        self.settings = settings
        self._layout = layout
        self._programs = programs
        self._children: dict[str, Child] = {}
        self._temporary = False

    @classmethod
    def start(
        cls,
        components: tuple[str, ...] = DEFAULT_COMPONENTS,
        *,
        controllers: tuple[str, ...] = DEFAULT_CONTROLLERS,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        extra_args: Mapping[str, tuple[str, ...]] | None = None,
        kubernetes: str = "kubernetes",
        directory: Path | None = None,
        timeout_seconds: float = START_TIMEOUT_SECONDS,
    ) -> Self:
        """Start a control plane and wait until it is ready, building programs that are missing.

        Without a directory a temporary one is made, and removed at the end.
        Guarantees: /readyz is ok, the default namespace exists, and so does its service account when the
        controller for it was asked for.
        Raises: StartError with the tail of the log when a component is not ready in time; the logs are kept.
        """
        settings = ClusterSettings(
            components=components,
            controllers=controllers,
            feature_gates=feature_gates or {},
            runtime_config=runtime_config or {},
            extra_args=extra_args or {},
            kubernetes=kubernetes,
        )
        return cls.start_with(settings, directory=directory, timeout_seconds=timeout_seconds)

    @classmethod
    def start_with(
        cls,
        settings: ClusterSettings,
        *,
        directory: Path | None = None,
        timeout_seconds: float = START_TIMEOUT_SECONDS,
    ) -> Self:
        """Start from settings; see `start`."""
        if sys.platform != "linux":
            raise DevclusterError(f"The development cluster runs on Linux only, this is {sys.platform}.")
        programs = programs_for(settings)
        home = make_scratch() if directory is None else directory.absolute()
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            layout = Layout(home, free_ports(), choose_link() if settings.has_node else None)
            plane = cls(provision(settings, layout, programs["pki"]), settings, layout, programs)
            try:
                plane.launch((each for each in COMPONENTS if each in settings.components), timeout_seconds)
            except (PortTakenError, LinkTakenError):
                plane._kill_all()
                if not attempts_left:
                    keep(home)
                    raise
            except BaseException:
                plane._kill_all()
                keep(home)
                raise
            else:
                plane._temporary = directory is None
                return plane
        raise AssertionError("the last attempt returns or raises")

    def __enter__(self) -> Self:
        """Give the running control plane."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.stop()

    def stop(self) -> None:
        """End every component and remove the data; the logs stay if the caller chose the directory."""
        self._kill_all()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def records(self) -> list[Record]:
        """Give the processes of the components, in the order of their starting."""
        return [child.record for child in self._children.values()]

    def kill(self, component: str) -> None:
        """Kill one component as a crash would."""
        self._children[component].kill()

    def restart(self, component: str, *, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Kill one component, start it again at the same address, and wait until it is ready."""
        self.kill(component)
        self._launch(component, time.monotonic() + timeout_seconds)

    @contextmanager
    def paused(self, component: str) -> Iterator[None]:
        """Stop one component's clock for the length of the block: connections stay open and silent."""
        self._children[component].send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._children[component].send(signal.SIGCONT)

    def launch(self, components: Iterable[str], timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Start components one after the other.

        Raises: StartError when one is not ready in time.
        """
        deadline = time.monotonic() + timeout_seconds
        for component in components:
            self._launch(component, deadline)

    def _launch(self, component: str, deadline: float) -> None:
        command = [str(self._programs[component]), *arguments(component, self.settings, self._layout)]
        child = Child(
            component,
            command,
            log=self._layout.log(component),
            directory=self.directory,
            machine=self._children["machine"].record.pid if component in ON_THE_NODE else 0,
            waited=component == "machine",
        )
        self._children[component] = child
        write_records(self.directory / PROCESS_RECORDS, self.records())
        await_ready(child, self.settings, self._layout, self.access, deadline=deadline)
        self._complete(child)

    def _complete(self, child: Child) -> None:
        """Prepare a component before others use it."""
        if child.name == "machine":
            self._layout.node.connect(child.record.pid)
            make_groups(self.directory)
        elif child.name == "containerd":
            install_pause_image(self.directory, self._programs["pause"])

    def _kill_all(self) -> None:
        for child in reversed(self._children.values()):
            child.kill()
        self._children.clear()
        (self.directory / PROCESS_RECORDS).unlink(missing_ok=True)
        remove_groups(self.directory)
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)
