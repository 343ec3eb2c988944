"""Clusters that outlive the command that starts them: a server process holds the control plane."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from devcluster.cache import locked, write_atomically
from devcluster.control_plane.cluster import Access, Cluster
from devcluster.control_plane.readiness import StartError
from devcluster.control_plane.server import ORDER, READY, STATE, as_json
from devcluster.errors import DevclusterError
from devcluster.node.cgroups import remove_groups
from devcluster.processes import PROCESS_RECORDS, Record, read_records, write_records
from devcluster.requirements import programs_for
from devcluster.settings import ClusterSettings

SERVER_LOG = "server.log"
SERVER_RECORD = "server.json"
STOP_GRACE_SECONDS = 15.0


class Background:
    """A cluster in a directory, shared by every process that names the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def up(self, settings: ClusterSettings | None = None, *, owner_pid: int | None = None) -> Cluster:
        """Start the cluster, or give the one that already runs.

        Guarantees: concurrent callers get one cluster; with an owner, it ends when that process ends.
        Raises: StartError when it cannot start, DevclusterError when it runs with other settings.
        """
        wanted = settings or ClusterSettings()
        with self._locked():
            state = self._running_state()
            if state is not None:
                self._refuse_other_settings(state, wanted)
                return _cluster(state)
            self._sweep()
            # Before the server starts, so that the user sees the progress of the build.
            programs_for(wanted)
            return _cluster(self._start_server(wanted, owner_pid))

    def down(self) -> bool:
        """End the cluster and remove its directory; False when there was nothing.

        Guarantees: also cleans up after a crash, and never signals a process that is not the cluster's.
        """
        with self._locked():
            return self._sweep()

    def connect(self) -> Cluster:
        """Give the running cluster.

        Raises: DevclusterError when none runs here.
        """
        state = self._running_state()
        if state is None:
            raise DevclusterError("No cluster is running; start one with `python -m devcluster up`.")
        return _cluster(state)

    def records(self) -> list[Record]:
        """Give the processes of the cluster that are alive."""
        return [record for record in self._all_records() if record.alive()]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.directory.with_name(f"{self.directory.name}.lock")):
            yield

    def _state(self) -> dict[str, Any] | None:
        try:
            state = json.loads((self.directory / STATE).read_text())
        except FileNotFoundError:
            return None
        assert isinstance(state, dict)
        return state

    def _running_state(self) -> dict[str, Any] | None:
        alive = any(record.alive() for record in read_records(self.directory / SERVER_RECORD))
        return self._state() if alive else None

    def _refuse_other_settings(self, state: dict[str, Any], wanted: ClusterSettings) -> None:
        if state["settings"] != as_json(wanted):
            raise DevclusterError(
                "A cluster with other settings is already running; "
                "end it with `python -m devcluster down` first, or choose another name."
            )

    def _all_records(self) -> list[Record]:
        files = (SERVER_RECORD, PROCESS_RECORDS)
        return [record for name in files for record in read_records(self.directory / name)]

    def _sweep(self) -> bool:
        """End the server, which ends its components, then the remaining processes."""
        found = self.directory.exists()
        for record in self._all_records():
            record.end(grace_seconds=STOP_GRACE_SECONDS if record.name == "server" else 0.0)
        remove_groups(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        return found

    def _start_server(self, settings: ClusterSettings, owner_pid: int | None) -> dict[str, Any]:
        self.directory.mkdir(parents=True, mode=0o700)
        owner = None if owner_pid is None else asdict(Record.of("owner", owner_pid))
        write_atomically(self.directory / ORDER, json.dumps({"settings": as_json(settings), "owner": owner}))
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as pipe:
            try:
                server = self._spawn(writing)
            finally:
                os.close(writing)
            try:
                answer = pipe.read()
            except BaseException:
                server.end(grace_seconds=STOP_GRACE_SECONDS)
                raise
        state = self._state()
        if answer != READY or state is None:
            raise StartError((self.directory / SERVER_LOG).read_text().strip())
        return state

    def _spawn(self, ready_descriptor: int) -> Record:
        # posix_spawn and not subprocess: the server is meant to outlive the object that would represent it.
        source_root = Path(__file__).parents[2]
        log = os.open(self.directory / SERVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "devcluster.control_plane.server", str(self.directory)],
                {**os.environ, "PYTHONPATH": str(source_root)},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                    (os.POSIX_SPAWN_DUP2, ready_descriptor, 1),
                ],
                setsid=True,
            )
        finally:
            os.close(log)
        server = Record.of("server", pid)
        write_records(self.directory / SERVER_RECORD, [server])
        return server


def _cluster(state: dict[str, Any]) -> Cluster:
    paths = {name: Path(state["access"][name]) for name in ("directory", "ca_file", "kubeconfig")}
    return Cluster(Access(**{**state["access"], **paths}))
