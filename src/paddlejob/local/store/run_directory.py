"""The directory of a run: its job file, status, events, environments, logs and files.

<job>-<id>/
  job.yaml            the file as it was given
  status.json         the record: job, pods, ports, how it stands
  events.jsonl        the events, in order
  env/<pod>.env       the environment of each pod's training container
  logs/<pod>/<container>.log, .times, .starts
                      its output, when it came, and how long the log was at each start
  progress/<pod>      what the recorder in a pod, or its program, reports
  files/<pod>/        what pods wrote into directories of their images
  control             the socket on which a live run takes commands
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.local.errors import InputError
from paddlejob.local.store import atomic, file_lock

RUNS_VARIABLE = "PADDLEJOB_RUNS"
LATEST = "@latest"
"""In place of a name: the newest run."""
MIN_RECORD_BYTES = 1 << 16
"""The last record is longer than the first, and must fit into its place on a full disk."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that a pod wrote."""

    pod: str
    path: str
    """As the program would name it from its working directory."""
    location: str
    """Where it is on this machine."""


class Outcome(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What came of a run."""

    summary: str = ""
    """The line in which worker 0 printed its result, or how far it got."""
    metrics: dict[str, float] = {}
    """The numbers in that line."""
    files: tuple[WrittenFile, ...] = ()
    """Files that were written, models first."""
    has_more_files: bool = False


class RunRecord(msgspec.Struct, frozen=True, rename="camel"):
    """How a run stands."""

    job: PaddleJob
    pods: tuple[Pod, ...] = ()
    gone: tuple[str, ...] = ()
    """Those of the pods that do not exist any more."""
    pids: dict[str, int] = {}
    """Process ids on this machine, by pod."""
    base_port: int = 0
    notes: tuple[str, ...] = ()
    """What this machine does in another way than a cluster."""
    python: str = ""
    """The interpreter of the containers, and why it was chosen."""
    result: str = ""
    """Completed, Failed, Interrupted or Stopped; empty while the run lives."""
    outcome: Outcome = Outcome()


class RunDirectory:
    """One run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def began(self) -> float:
        """When the run began, in seconds since the epoch."""
        return (self.path / "job.yaml").stat().st_mtime

    @property
    def recorded(self) -> float:
        """When the record was last written: of a run that is over, its end."""
        return (self.path / "status.json").stat().st_mtime

    @property
    def job_name(self) -> str:
        """The name of the job that ran."""
        return self.name.rpartition("-")[0]

    def log(self, pod: str, container: str) -> Path:
        """Return the log of a container."""
        return self.path / "logs" / pod / f"{container}.log"

    def logs(self, pod: str) -> list[Path]:
        """Return the logs that a pod has, its training container's first."""
        return sorted((self.path / "logs" / pod).glob("*.log"), key=lambda each: each.stat().st_ctime_ns)

    def env(self, pod: str) -> Path:
        """Return the file with a pod's environment."""
        return self.path / "env" / f"{pod}.env"

    def progress(self, pod: str) -> Path:
        """Return the file that a pod reports its progress in."""
        return self.path / "progress" / pod

    def files(self, pod: str) -> Path:
        """Return where a pod's own files are."""
        return self.path / "files" / pod

    def volumes(self, pod: str) -> Path:
        """Return where a pod's volumes are, while it lives."""
        return self.path / "volumes" / pod

    @property
    def control(self) -> Path:
        """The socket on which the run takes commands."""
        return self.path / "control"

    def remove(self) -> None:
        """Remove the run and all it wrote. Raises InputError."""
        try:
            # The kernel keeps a directory for each overlay that even its owner may not open.
            for private in self.path.glob("files/*/*/*.work/work"):
                private.chmod(0o700)
            shutil.rmtree(self.path)
        except OSError as error:
            raise InputError(f"cannot remove {error.filename or self.path}: {error.strerror}") from error

    def write_record(self, record: RunRecord) -> None:
        """Replace the record; readers see the old one or the new one. Raises OSError.

        On a full disk a record that is no longer than the old one takes the place of that one.
        """
        path, content = self.path / "status.json", msgspec.json.encode(record)
        try:
            atomic.write(path, msgspec.json.format(content, indent=2).ljust(MIN_RECORD_BYTES))
        except OSError:
            with path.open("r+b", buffering=0) as old:
                size = old.seek(0, os.SEEK_END)
                if size < len(content):
                    raise
                old.seek(0)
                # As long as before: the next record may need the blocks again.
                old.write(content.ljust(size))

    def read_record(self) -> RunRecord | None:
        """Return the record, or None where it is missing or cut."""
        try:
            return msgspec.json.decode((self.path / "status.json").read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def write_env(self, pod: str, values: Mapping[str, str]) -> None:
        """Keep what a pod's training container was started with."""
        text = "".join(f"{name}={values[name]}\n" for name in sorted(values))
        self.env(pod).write_text(text)

    def append_event(self, line: bytes) -> None:
        """Add an event."""
        with (self.path / "events.jsonl").open("ab") as events:
            events.write(line + b"\n")

    def lock(self) -> int:
        """Mark the run as alive for as long as the returned descriptor is open."""
        return file_lock.hold(self.path / ".lock")

    @property
    def is_alive(self) -> bool:
        """Whether a runner is at work on it."""
        try:
            return file_lock.is_held(self.path / ".lock")
        except OSError:
            return False


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return where this user's runs are kept."""
    if chosen := environ.get(RUNS_VARIABLE):
        return Path(chosen).resolve()
    state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "paddlejob" / "runs"


def create(runs: Path, job_name: str) -> RunDirectory:
    """Make the directory of a new run, readable by its owner only."""
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
    """Return the runs, newest first."""
    if not runs.is_dir():
        return []
    found = [each for each in runs.iterdir() if (each / "job.yaml").is_file()]
    return [RunDirectory(each) for each in sorted(found, key=_start_time, reverse=True)]


def find(runs: Path, name: str = "") -> RunDirectory:
    """Return a run to look at: that of this name, else the newest of this job, else one whose name begins so.

    Without a name, and for `@latest`, it is the newest of all. Raises InputError.
    """
    present = all_runs(runs)
    if name == LATEST:
        name = ""
    for fits in (
        lambda run: run.name == name,
        lambda run: run.job_name == name,
        lambda run: run.name.startswith(name),
    ):
        if found := next(filter(fits, present), None):
            return found
    raise _no_run(runs, name, present)


def choose(runs: Path, name: str, *, live: bool) -> RunDirectory:
    """Return the one run to act on: the one of exactly this name, or the only (live) one of this job.

    Without a name it is the only live run of all. Raises InputError, also when there are several.
    """
    present = all_runs(runs)
    if name == LATEST and present:
        return present[0]
    meant = [each for each in present if name in (each.name, each.job_name, "")]
    exact = [each for each in meant if each.name == name]
    candidates = exact or [each for each in meant if each.is_alive or not live]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        listed = ", ".join(each.name for each in candidates)
        raise InputError(f"several runs match: {listed}; give the full name of one")
    if meant:
        raise InputError(
            f"{f'{name} is not' if name else 'no run is'} running; `paddlejob runs` lists all runs"
        )
    raise _no_run(runs, name, present)


def _no_run(runs: Path, name: str, present: list[RunDirectory]) -> InputError:
    if not present:
        return InputError(f"there are no runs in {runs} yet")
    return InputError(
        f"there is no run {name}; the newest are {', '.join(each.name for each in present[:5])}"
    )


def _start_time(run: Path) -> int:
    return (run / "job.yaml").stat().st_mtime_ns
