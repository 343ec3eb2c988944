"""Clusters that outlive the command that starts them: a serving process holds the control plane until told to stop."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from devcluster.build import ensure
from devcluster.cache import locked, write_atomically
from devcluster.cluster import Access, Cluster
from devcluster.components import Settings
from devcluster.controlplane import PROCESS_RECORDS, ControlPlane
from devcluster.processes import Record, read_records
from devcluster.programs import DevclusterError
from devcluster.readiness import StartError

STATE = "cluster.json"
ORDER = "order.json"
SERVER_LOG = "server.log"
READY = b"ready"
STOP_GRACE_SECONDS = 15.0


class Background:
    """A cluster in a directory, shared by every process that names the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    def up(self, settings: Settings | None = None, *, owner_pid: int | None = None) -> Cluster:
        """Start the cluster, or give the one that already runs.

        Guarantees: concurrent callers get one cluster. With an owner, the cluster ends when that process ends.
        Raises: StartError when it cannot start, DevclusterError when it runs with other settings.
        """
        wanted = settings or Settings()
        with self._locked():
            state = self._running_state()
            if state is not None:
                self._refuse_other_settings(state, wanted)
                return _cluster(state)
            self._sweep()
            # Before the server starts, so that the build's progress is seen by the person who waits.
            ensure(("pki", *wanted.components), kubernetes=wanted.kubernetes)
            return _cluster(self._start_server(wanted, owner_pid))

    def down(self) -> bool:
        """End the cluster and remove its directory; False when there was nothing.

        Guarantees: also cleans up after a server that crashed, and never signals a process that is not the cluster's.
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
        state = self._state()
        return state if state is not None and Record(**state["server"]).alive() else None

    def _refuse_other_settings(self, state: dict[str, Any], wanted: Settings) -> None:
        if state["settings"] != _as_json(wanted):
            raise DevclusterError(
                "A cluster with other settings is already running; end it with `python -m devcluster down` first, "
                "or choose another name."
            )

    def _all_records(self) -> list[Record]:
        state = self._state()
        server = [Record(**state["server"])] if state is not None else []
        return [*server, *read_records(self.directory / PROCESS_RECORDS)]

    def _sweep(self) -> bool:
        """End what is left of a cluster: the server first, which ends its components, then what it could not end."""
        found = self.directory.exists()
        for record in self._all_records():
            record.end(grace_seconds=STOP_GRACE_SECONDS if record.name == "server" else 0.0)
        shutil.rmtree(self.directory, ignore_errors=True)
        return found

    def _start_server(self, settings: Settings, owner_pid: int | None) -> dict[str, Any]:
        self.directory.mkdir(parents=True, mode=0o700)
        owner = None if owner_pid is None else asdict(Record.of("owner", owner_pid))
        write_atomically(self.directory / ORDER, json.dumps({"settings": asdict(settings), "owner": owner}))
        reading, writing = os.pipe()
        try:
            server = self._spawn(writing)
        finally:
            os.close(writing)
        try:
            with os.fdopen(reading, "rb") as pipe:
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
        source_root = Path(__file__).parent.parent
        log = os.open(self.directory / SERVER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "devcluster.background", str(self.directory)],
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
        return Record.of("server", pid)


def _as_json(settings: Settings) -> Any:
    return json.loads(json.dumps(asdict(settings)))


def _settings(stored: dict[str, Any]) -> Settings:
    extra = {name: tuple(values) for name, values in stored["extra_args"].items()}
    lists = {name: tuple(stored[name]) for name in ("components", "controllers")}
    return Settings(**{**stored, **lists, "extra_args": extra})


def _cluster(state: dict[str, Any]) -> Cluster:
    paths = {name: Path(state["access"][name]) for name in ("directory", "ca_file", "kubeconfig")}
    return Cluster(Access(**{**state["access"], **paths}))


def serve(directory: Path) -> None:
    """Hold the control plane that the order in the directory asks for, until a signal or the owner's end."""
    signal.signal(signal.SIGTERM, _exit_in_order)
    order = json.loads((directory / ORDER).read_text())
    settings = _settings(order["settings"])
    owner = Record(**order["owner"]) if order["owner"] else None
    with ControlPlane.start_with(settings, directory=directory) as plane:
        state = {
            "access": asdict(plane.access),
            "settings": _as_json(settings),
            "server": asdict(Record.of("server", os.getpid())),
        }
        write_atomically(directory / STATE, json.dumps(state, default=str, indent=1), mode=0o600)
        os.write(1, READY)
        os.dup2(2, 1)  # the pipe's other end reads until it closes
        _wait_for_an_end(plane, owner)


def _exit_in_order(_signal: int, _frame: object) -> NoReturn:
    # An exception, so that the `with` block ends the components wherever the signal arrives.
    sys.exit(0)


def _wait_for_an_end(plane: ControlPlane, owner: Record | None) -> None:
    """Return when the owner has ended; raise when a component has."""
    poller = select.poll()
    names: dict[int, str] = {}
    for record in [*plane.records(), *([owner] if owner else [])]:
        handle = record.open()
        if handle is None:
            names[-1] = record.name
            break
        names[handle] = record.name
        poller.register(handle, select.POLLIN)
    ended = [names[-1]] if -1 in names else [names[handle] for handle, _ in poller.poll()]
    if ended != ["owner"]:
        raise DevclusterError(f"{', '.join(ended)} ended unexpectedly; see the logs in {plane.directory / 'logs'}.")


def main() -> None:
    """Run the server of the directory named on the command line."""
    try:
        serve(Path(sys.argv[1]))
    except DevclusterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
