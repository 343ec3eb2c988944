"""Runs the examples as pods: one process each, with the variables of a PaddleJob and nothing else."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE_SECONDS = 240.0
END = "(end of output)"
ROLES = {"ps": "PSERVER", "worker": "TRAINER"}

# Below the range from which the kernel takes ports for outgoing connections, which could be any of them.
_blocks = itertools.count(20_000 + os.getpid() % 300 * 40, 20)


class PodProcess:
    """One pod: a process whose lines can be waited for, and whatever it starts."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        cwd.mkdir(parents=True)
        self.name = name
        self._ip = environment["POD_IP"]
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as output:
            for line in output:
                self._append(line.rstrip("\n"))
        self._append(END)

    def _append(self, line: str) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line that matches from its beginning."""

        def found() -> re.Match[str] | bool | None:
            matches = (re.match(pattern, line) for line in self.lines)
            return next(filter(None, matches), END in self.lines)

        with self._changed:
            match = self._changed.wait_for(found, PATIENCE_SECONDS)
        assert isinstance(match, re.Match), f"{self.name} did not print {pattern!r}:\n" + "\n".join(
            self.lines
        )
        return match

    def send(self, number: signal.Signals) -> None:
        """To the pod's first process only, as a kubelet does."""
        self._process.send_signal(number)

    def exit_code(self) -> int:
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code

    def survivors(self) -> list[int]:
        """The processes of the pod that are left, given a moment in which the kernel clears them away."""
        deadline = time.monotonic() + 5
        while (alive := _processes_with(f"POD_IP={self._ip}")) and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        return alive

    def destroy(self) -> None:
        for pid in _processes_with(f"POD_IP={self._ip}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.exit_code()
        assert not self.survivors(), f"a process of {self.name} survives SIGKILL"


class RunningJob:
    """The pods of one job."""

    def __init__(self, pods: list[PodProcess]) -> None:
        self.pods = {pod.name: pod for pod in pods}
        self.workers = [pod for pod in pods if pod.name.startswith("worker")]
        self.servers = [pod for pod in pods if pod.name.startswith("ps")]

    def exit_codes(self) -> dict[str, int]:
        return {name: pod.exit_code() for name, pod in self.pods.items()}

    def send(self, number: signal.Signals) -> None:
        for pod in self.pods.values():
            pod.send(number)

    def survivors(self) -> list[str]:
        return [name for name, pod in self.pods.items() if pod.survivors()]


StartJob = Callable[..., RunningJob]


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[StartJob]:
    """Starts jobs; whatever is still running at the end of the test is ended."""
    started: list[RunningJob] = []

    def start(
        command: list[str],
        *,
        ps: int = 0,
        workers: int,
        of_pods: Mapping[str, Mapping[str, str]] = {},
        **settings: object,
    ) -> RunningJob:
        """`of_pods` has variables of single pods, such as worker-1."""
        place = Place(ps, workers)
        own = {name: str(value) for name, value in settings.items()}
        directory = tmp_path / f"job-{len(started)}"
        pods = [
            PodProcess(
                f"{role}-{i}",
                command,
                {**place.environment(role, i), **own, **of_pods.get(f"{role}-{i}", {})},
                directory / f"{role}-{i}",
            )
            for role, count in (("ps", ps), ("worker", workers))
            for i in range(count)
        ]
        started.append(RunningJob(pods))
        return started[-1]

    yield start
    for pod in itertools.chain.from_iterable(job.pods.values() for job in started):
        pod.destroy()


class Place:
    """The addresses of one job on this machine: a block of ports and one loopback address for each pod."""

    def __init__(self, ps: int, workers: int) -> None:
        self.port = next(port for port in _blocks if all(_is_free(port + n) for n in range(20)))
        self.network = f"127.{64 + self.port // 20 % 128}"
        self.counts = {"ps": ps, "worker": workers}

    def ip(self, role: str, index: int) -> str:
        return f"{self.network}.{1 + list(ROLES).index(role)}.{1 + index}"

    def endpoints(self, role: str) -> str:
        return ",".join(f"{self.ip(role, index)}:{self.port}" for index in range(self.counts[role]))

    def environment(self, role: str, index: int) -> dict[str, str]:
        workers = self.counts["worker"]
        common = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": 1,  # as in the images: without it the launcher keeps all lines to the end
            "POD_IP": self.ip(role, index),
            "PADDLE_PORT": self.port,
            "TRAINING_ROLE": ROLES[role],
            "PADDLE_TRAINING_ROLE": ROLES[role],
            "PADDLE_TRAINER_ID": index,
            "PADDLE_TRAINERS_NUM": workers,
            "PADDLE_TRAINER_ENDPOINTS": self.endpoints("worker"),
            "PADDLE_TRAINERS": ",".join(self.ip("worker", each) for each in range(workers)),
            "TRAINER_PORTS_NUM": 20,
            "PADDLE_CURRENT_ENDPOINT": f"{self.ip(role, index)}:{self.port}",
            "PADDLE_JOB_ID": f"example-{self.port}",
        }
        mode = self._parameter_server() if self.counts["ps"] else self._collective(index)
        return {name: str(value) for name, value in (common | mode).items()}

    def _parameter_server(self) -> dict[str, object]:
        return {
            "PADDLE_PSERVERS_IP_PORT_LIST": self.endpoints("ps"),
            "PADDLE_WITH_GLOO": 1,
            "PADDLE_GLOO_RENDEZVOUS": 3,
            "PADDLE_GLOO_HTTP_ENDPOINT": f"{self.ip('ps', 0)}:{self.port + 18}",
        }

    def _collective(self, index: int) -> dict[str, object]:
        return {
            "PADDLE_DISTRI_BACKEND": "gloo",
            "PADDLE_MASTER": f"{self.ip('worker', 0)}:{self.port + 1}",
            "PADDLE_NNODES": self.counts["worker"],
            "PADDLE_RANK": index,
        }


@pytest.fixture(scope="session")
def parameter_server_python() -> str:
    return _script("paddle_env.py", "2.6.2")


@pytest.fixture(scope="session")
def collective_python() -> str:
    return _script("paddle_env.py", "3.3.1")


@pytest.fixture(scope="session")
def census() -> str:
    return _script("example_data.py", "wide_and_deep")


@pytest.fixture(scope="session")
def digits() -> str:
    return _script("example_data.py", "resnet")


def _script(name: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _processes_with(variable: str) -> list[int]:
    """The launcher's children have sessions of their own, but all of a pod inherit its address."""
    wanted, found = variable.encode(), []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked, or is not ours
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
    return found
