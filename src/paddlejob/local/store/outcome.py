"""Result, progress and files of a run.

Result and progress are read from the log and the progress reports of a pod. Files that the programs wrote are
in files/<pod>/<container>-<start>/<directory of the container, with '-' for '/'>/...
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.core.pod_set import Replica, pod_name, training_container_name
from paddlejob.local.errors import InputError
from paddlejob.local.store.run_directory import Outcome, RunDirectory, WrittenFile
from paddlejob.training.log_lines import Progress, Tracker, metrics

LOG_BYTES = 1 << 16
"""Bytes at the end of a log that are searched for the result."""
REPORT_BYTES = 4096
MAX_FILES = 20
_FRACTION = re.compile(rb"(\d{1,15})/(\d{1,15})")
MAX_SCANNED = 100_000
"""Limits the time that a run with very many files takes to end."""
_UNIMPORTANT = re.compile(r"(^|/)(__pycache__|\.cache)/|(^|/)http\.log$|_train_desc\.prototxt$")
"""Paddle itself writes the last two: its rendezvous server and its datasets."""
_MODELS = (".pdparams", ".pdmodel", ".pdiparams", ".pdopt", ".pdparam", ".nb", ".onnx", ".safetensors")


class _Report(msgspec.Struct):
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    loss: float | str | None = None


def read(run: RunDirectory, job: PaddleJob) -> Outcome:
    """Return the outcome of a run after its pods have ended."""
    result_line = summary(run, job)
    numbers = metrics(result_line)
    found = written_files(run, MAX_FILES + 1)
    return Outcome(
        summary=result_line,
        metrics={name: number for name, number in numbers.items() if math.isfinite(number)},
        files=tuple(found[:MAX_FILES]),
        has_more_files=len(found) > MAX_FILES,
    )


def summary(run: RunDirectory, job: PaddleJob) -> str:
    """Return worker 0's last result line, else its progress, else an empty string."""
    tracker = track_log(run, job, LOG_BYTES)
    return tracker.result or str(tracker.progress or "")


def track_log(run: RunDirectory, job: PaddleJob, end_bytes: int) -> Tracker:
    """Return the progress and result found in the last bytes of worker 0's log."""
    assert job.spec.worker is not None
    pod, container = pod_name(job.name, Replica(Role.WORKER, 0)), training_container_name(job.spec.worker)
    tracker = Tracker()
    for line in read_end(run.log(pod, container), end_bytes).decode(errors="replace").split("\n"):
        tracker.feed(line, 0.0)
    return tracker


def reported_progress(path: Path) -> Progress | None:
    """Return the progress in the last whole line of a report file, None if it has no readable one.

    Recorders and programs append lines of JSON or of N/M.
    """
    lines = read_end(path, REPORT_BYTES).split(b"\n")[:-1]
    return parse_report(lines[-1]) if lines else None


def parse_report(line: bytes) -> Progress | None:
    """Parse a line of a report file. Returns None if it is neither JSON nor N/M."""
    if fraction := _FRACTION.fullmatch(line.strip()):
        return Progress(step=int(fraction[1]), steps=int(fraction[2]))
    with suppress(msgspec.DecodeError, ValueError):
        report = msgspec.json.decode(line, type=_Report)
        loss = None if report.loss is None else float(report.loss)
        return Progress(epoch=report.epoch, step=report.step, steps=report.total, loss=loss)
    return None


def read_end(path: Path, end_bytes: int) -> bytes:
    """Return the last bytes of a file, none if it cannot be read."""
    try:
        with path.open("rb") as reader:
            reader.seek(max(0, reader.seek(0, 2) - end_bytes))
            return reader.read()
    except OSError:
        return b""


def written_files(run: RunDirectory, limit: int) -> list[WrittenFile]:
    """Return files written since the run began, models first, then by path."""
    scanned = itertools.islice(_scan(run), MAX_SCANNED)
    return heapq.nsmallest(limit, scanned, key=_sort_key)


def _sort_key(file: WrittenFile) -> tuple[bool, str, str]:
    return PurePosixPath(file.path).suffix not in _MODELS, file.path, file.pod


def _scan(run: RunDirectory) -> Iterator[WrittenFile]:
    began = run.began
    for directory in _directories(run, "*"):
        for path in directory.rglob("*"):
            status = path.lstat()
            is_new_file = stat.S_ISREG(status.st_mode) and status.st_mtime >= began
            inside = path.relative_to(directory)
            if is_new_file and not _UNIMPORTANT.search(str(inside)):
                yield WrittenFile(directory.parent.parent.name, str(inside), str(path))


def locate_file(run: RunDirectory, pod: str, path: str) -> Path:
    """Return the newest version of a file or directory that a pod wrote. Raises InputError."""
    wanted = PurePosixPath(path)
    if ".." in wanted.parts:
        raise InputError(f"{path}: write a path without '..'")
    for directory in reversed(list(_directories(run, pod))):
        place = _inside(directory, wanted)
        if place is not None and place.exists():
            return place
    raise InputError(f"{pod} of {run.name} did not write {path}; its files are in {run.files(pod)}")


def copy_file(source: Path, target: Path) -> Path:
    """Copy a file or directory to a path, or into an existing directory. Returns the new path.

    Raises InputError.
    """
    place = target / source.name if target.is_dir() else target
    try:
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True, symlinks=True)
        else:
            shutil.copy2(source, place)
    except OSError as error:
        raise InputError(f"cannot copy to {place}: {error}") from error
    return place


def _inside(directory: Path, wanted: PurePosixPath) -> Path | None:
    if not wanted.is_absolute():
        return directory / wanted
    for parent in (wanted, *wanted.parents):
        if directory.name == (str(parent).strip("/").replace("/", "-") or "root"):
            return directory / wanted.relative_to(parent)
    return None


def _directories(run: RunDirectory, pod: str) -> Iterator[Path]:
    """Yield the directories that containers wrote to, oldest start first."""
    for start in sorted(run.files(pod).parent.glob(f"{pod}/*"), key=lambda each: each.stat().st_ctime_ns):
        for directory in sorted(start.iterdir()):
            if directory.is_dir() and directory.suffix != ".work":
                yield directory
