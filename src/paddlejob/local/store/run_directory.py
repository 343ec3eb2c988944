"""The directory of a run: its job file, status, events, environments, logs and files.

<job>-<id>/
  job.yaml            the job file, unchanged
  status.json         the record: job, pods, ports, result
  events.jsonl        the events, in order
  env/<pod>.env       the environment of each pod's training container
  logs/<pod>/<container>.log, .times, .starts
                      its output, the times of output, and the size of the log at each start
  progress/<pod>      progress reports of the pod's recorder or program
  launcher/<pod>/     logs of the processes that Paddle's launcher started in the pod
  files/<pod>/        files that the pod wrote into directories of its image
  control             the control socket of a live run
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.local.errors import InputError

RUNS_VARIABLE = "PADDLEJOB_RUNS"
MIN_RECORD_BYTES = 1 << 16
"""Records are padded to this size: the last one is longer than the first and must fit on a full disk."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
MEMORY = Path("/dev/shm")  # noqa: S108 - the memory file system
_MEMORY_PREFIX = "paddlejob-"
_LOCK = ".lock"


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that a pod wrote."""

    pod: str
    path: str
    """Path relative to the container's directory."""
    location: str
    """Path on this machine."""


class Outcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of a run."""

    summary: str = ""
    """The result line printed by worker 0, or its progress."""
    metrics: dict[str, float] = {}
    """The numbers in that line."""
    files: tuple[WrittenFile, ...] = ()
    """Written files, models first."""
    has_more_files: bool = False


class RunRecord(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a run, as stored in status.json."""

    job: PaddleJob
    pods: tuple[Pod, ...] = ()
    gone: tuple[str, ...] = ()
    """Names of pods that no longer exist."""
    pids: dict[str, int] = {}
    """Process ids on this machine, by pod."""
    base_port: int = 0
    notes: tuple[str, ...] = ()
    """Differences from a cluster."""
    python: str = ""
    """The containers' interpreter, and why it was chosen."""
    result: str = ""
    """Completed, Failed, Interrupted or Stopped; empty while the run is live."""
    outcome: Outcome = Outcome()


class RunDirectory:
    """The directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @property
    def began(self) -> float:
        """Start time of the run, in seconds since the epoch."""
        return (self.path / "job.yaml").stat().st_mtime

    @property
    def recorded(self) -> float:
        """Time of the last record; for a finished run, its end."""
        return (self.path / "status.json").stat().st_mtime

    @property
    def job_name(self) -> str:
        """Name of the job."""
        return self.name.rpartition("-")[0]

    @property
    def run_dir_flag(self) -> str:
        """The flag that commands need to find the run; empty in the default directory."""
        runs = self.path.parent.resolve()
        is_default = runs == state_directory(os.environ).resolve()
        return "" if is_default else f" --run-dir {shlex.quote(str(runs))}"

    def log(self, pod: str, container: str) -> Path:
        """Return the path of a container's log."""
        return self.path / "logs" / pod / f"{container}.log"

    def logs(self, pod: str) -> list[Path]:
        """Return the existing logs of a pod, oldest first."""
        return sorted((self.path / "logs" / pod).glob("*.log"), key=lambda each: each.stat().st_ctime_ns)

    def env(self, pod: str) -> Path:
        """Return the path of a pod's environment file."""
        return self.path / "env" / f"{pod}.env"

    def progress(self, pod: str) -> Path:
        """Return the path of a pod's progress reports."""
        return self.path / "progress" / pod

    def launcher_logs(self, pod: str) -> Path:
        """Return the directory in which Paddle's launcher logs the processes of a pod."""
        return self.path / "launcher" / pod

    def files(self, pod: str) -> Path:
        """Return the directory of the files that a pod wrote."""
        return self.path / "files" / pod

    def volumes(self, pod: str) -> Path:
        """Return the directory of a live pod's volumes."""
        return self.path / "volumes" / pod

    @property
    def control(self) -> Path:
        """The control socket."""
        return self.path / "control"

    def remove(self) -> None:
        """Delete the run with its logs and files. Raises InputError."""
        try:
            # The kernel creates a directory for each overlay that not even its owner may open.
            for private in self.path.glob("files/*/*/*.work/work"):
                private.chmod(0o700)
            shutil.rmtree(self.path)
        except OSError as error:
            raise InputError(f"cannot remove {error.filename or self.path}: {error.strerror}") from error

    def write_record(self, record: RunRecord) -> None:
        """Replace the record atomically. Raises OSError.

        On a full disk the old record is overwritten in place, if it is long enough.
        """
        path, content = self.path / "status.json", msgspec.json.encode(record)
        try:
            write_atomically(path, msgspec.json.format(content, indent=2).ljust(MIN_RECORD_BYTES))
        except OSError:
            with path.open("r+b", buffering=0) as old:
                size = old.seek(0, os.SEEK_END)
                if size < len(content):
                    raise
                old.seek(0)
                # Keep the size: the next record may need the blocks.
                old.write(content.ljust(size))

    def read_record(self) -> RunRecord | None:
        """Return the record, or None if it is missing or incomplete."""
        try:
            return msgspec.json.decode((self.path / "status.json").read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def write_env(self, pod: str, values: Mapping[str, str]) -> None:
        """Write the environment of a pod's training container, one variable per line.

        A value with a line break, or with a double quote at its start, is written as a JSON string.
        """
        lines = (
            f"{name}={json.dumps(value) if _needs_quotes(value) else value}\n"
            for name, value in sorted(values.items())
        )
        self.env(pod).write_text("".join(lines))

    def read_env(self, pod: str) -> dict[str, str]:
        """Return the environment that `write_env` wrote. Raises OSError."""
        lines = self.env(pod).read_text().split("\n")[:-1]
        values = dict(line.partition("=")[::2] for line in lines)
        return {name: json.loads(text) if text.startswith('"') else text for name, text in values.items()}

    def append_event(self, line: bytes) -> None:
        with (self.path / "events.jsonl").open("ab") as events:
            events.write(line + b"\n")

    def lock(self) -> int:
        """Mark the run as alive for as long as the returned descriptor is open."""
        return hold_lock(self.path / ".lock")

    @property
    def is_alive(self) -> bool:
        """Whether the run has a live runner."""
        try:
            return is_locked(self.path / ".lock")
        except OSError:
            return False


def _needs_quotes(value: str) -> bool:
    return value.startswith('"') or "\n" in value or "\r" in value


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory of this user's runs."""
    if chosen := environ.get(RUNS_VARIABLE):
        return Path(chosen).resolve()
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "paddlejob" / "runs"


def create(runs: Path, job_name: str) -> RunDirectory:
    """Create the directory of a new run, readable by its owner only."""
    runs.mkdir(parents=True, exist_ok=True)
    while True:
        path = runs / f"{job_name}-{''.join(secrets.choice(_ALPHABET) for _ in range(5))}"
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        for part in ("env", "logs", "progress", "files", "volumes"):
            (path / part).mkdir()
        return RunDirectory(path)


def all_runs(runs: Path) -> list[RunDirectory]:
    """Return all runs, newest first."""
    if not runs.is_dir():
        return []
    found = [RunDirectory(each) for each in runs.iterdir() if (each / "job.yaml").is_file()]
    return sorted(found, key=lambda run: (run.path / "job.yaml").stat().st_mtime_ns, reverse=True)


def write_atomically(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file, so that readers see the old or the new content. Raises OSError and keeps the old."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(content)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def hold_lock(path: Path) -> int:
    """Create a locked file. The lock is held until the descriptor is closed or the process ends.

    The file appears already locked.
    """
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    temporary.rename(path)
    return descriptor


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock. Raises OSError if the file is not a lock of this user."""
    # The directory may belong to another user: do not block on a FIFO or follow links.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not a lock file of this user")
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def claim_memory(run: RunDirectory, memory: Path = MEMORY) -> Iterator[Path]:
    """Yield a run's directory in memory, or on disk if memory cannot be used. It is removed at the end.

    The lock is inside the directory, so that runs in other containers that share the memory see it.
    """
    place = memory / f"{_MEMORY_PREFIX}{run.name}"
    try:
        place.mkdir(mode=0o700)
    except OSError:
        place = run.path / "memory"
        place.mkdir(exist_ok=True)
    lock = hold_lock(place / _LOCK)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def sweep_memory(memory: Path = MEMORY) -> None:
    """Remove the directories of this user's dead runs."""
    for place in memory.glob(f"{_MEMORY_PREFIX}*"):
        # Directories of other users cannot be read, and must not be removed.
        with contextlib.suppress(OSError):
            if not is_locked(place / _LOCK):
                shutil.rmtree(place, ignore_errors=True)
