"""Read the state and the environment of the processes that Paddle's launcher starts in a pod.

For the process with local rank N the launcher writes the files workerlog.N and envlog.N, and the recorder
writes progress.N next to them. A shell script reads them in a running container. The files of a local run are
in the directory of the run.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import Env
from paddlejob.api.pod import Pod
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.streams.pod_scripts import ask_each, run_here, run_in_pod, running_pods
from paddlejob.core.pod_set import rank_of, replica_of
from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.text import printable
from paddlejob.training.log_lines import Tracker
from paddlejob.training.reports import Report

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob
    from paddlejob.client.job import Job
    from paddlejob.client.local_runs import LocalJob

MAX_PODS = 64
"""The maximum number of pods that are read for one view."""
LOG_BYTES = 4096
TIMEOUT_SECONDS = 10.0

# The files are in the directory given or in PADDLE_LOG_DIR. Without both, the command of the container may
# have chosen a directory, which a process writes to; the default is `log`.
FIND_LOGS = r"""
export LC_ALL=C
find_logs() {
  logs=${1:-$PADDLE_LOG_DIR}
  [ -n "$logs" ] || logs=$(ls -l /proc/[0-9]*/fd/1 2>/dev/null |
    sed -n 's|.* -> \(/.*\)/workerlog\.[0-9]*$|\1|p' | head -n 1)
  logs=${logs:-log}
}
find_logs "$1"
"""
# A space marks the lines of a log.
STATES = (
    FIND_LOGS
    + rf"""
cd "$logs" 2>/dev/null || exit 0
for file in workerlog.*; do
  [ -f "$file" ] || continue
  n=${{file#workerlog.}}
  echo "process $n"
  [ -f "envlog.$n" ] &&
    sed -n -e 's/^{Env.TRAINER_ID}=/rank &/p' -e 's/^FLAGS_selected_[a-z_]*s=/device &/p' "envlog.$n"
  [ -f "progress.$n" ] && {{ head -c {LOG_BYTES} "progress.$n"; echo; }} | sed -n 's/^./progress &/p'
  tail -c {LOG_BYTES} "$file" | sed 's/^/ /'
  echo
done
"""
)
ENVIRONMENT = FIND_LOGS + 'cat "$logs/envlog.$2" 2>/dev/null'
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_DEVICE = re.compile(r"FLAGS_selected_(\w+)s=(.*)")
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)")


class RankProcess(msgspec.Struct, frozen=True, rename="camel"):
    """A process that trains as one rank, or a pod that could not be read."""

    pod: str
    """Such as worker-1."""
    rank: int | None = None
    device: str = ""
    """Such as `gpu 3`; empty for a CPU."""
    phase: str = ""
    step: int = 0
    total: int = 0
    loss: str = ""
    last_line: str = ""
    trouble: str = ""


async def pod_processes(job: ClusterJob, rank: str) -> list[RankProcess]:
    """Run the script in the running containers, at most MAX_PODS, through the API server."""
    pods = (await running_pods(job, rank))[:MAX_PODS]
    return await _collect(job, rank, pods, lambda pod: run_in_pod(job, pod, STATES))


async def run_processes(job: LocalJob, rank: str) -> list[RankProcess]:
    """Read the files of a local run, which may be over."""
    ranks.check(job.state, rank)
    pods = ranks.select(job.state, await job.pods(), rank)[:MAX_PODS]

    def ask(pod: Pod) -> Awaitable[str]:
        return run_here(STATES, str(job.run.launcher_logs(pod.metadata.name)))

    return await _collect(job, rank, pods, ask)


async def _collect(
    job: Job, rank: str, pods: list[Pod], ask: Callable[[Pod], Awaitable[str]]
) -> list[RankProcess]:
    found: list[RankProcess] = []
    for pod, output, trouble in await ask_each(pods, ask, timeout_seconds=TIMEOUT_SECONDS):
        name = ranks.rank_of(job.state.name, pod.metadata.name)
        replica = replica_of(job.state.name, pod)
        place = rank_of(job.state.status, replica) if replica else 0
        first = place * ranks.processes_per_pod(job.state)
        found += [RankProcess(name, trouble=trouble)] if trouble else parse_states(name, output, first)
    if ranks.place_of(job.state, rank).process is not None:
        found = [each for each in found if each.rank == int(rank) or each.trouble]
    return sorted(found, key=lambda each: -1 if each.rank is None else each.rank)


def parse_states(pod: str, output: str, first_rank: int) -> Iterator[RankProcess]:
    """Parse the output of STATES. `first_rank` is the rank of the first process if no file has it."""
    for part in re.split(r"(?m)^process ", output)[1:]:
        number, *lines = part.split("\n")
        if not _NUMBER.fullmatch(number):
            continue
        known, log = {}, []
        for line in lines:
            word, _, rest = line.partition(" ")
            if word:
                known[word] = rest
            else:
                log.append(rest)
        yield _process(pod, first_rank + int(number), known, log)


def _process(pod: str, rank: int, known: dict[str, str], log: list[str]) -> RankProcess:
    printed = _progress_in(log)
    report = _report(known.get("progress", "")) or printed
    given = known.get("rank", "").partition("=")[2]
    device = _DEVICE.match(known.get("device", ""))
    return RankProcess(
        pod,
        int(given) if _NUMBER.fullmatch(given) else rank,
        " ".join(device.groups()) if device else "",
        report.phase,
        report.step,
        report.total or printed.total or 0,
        "" if report.loss is None else f"{float(report.loss):.4g}",
        next((line for line in map(printable, reversed(log)) if line), ""),
    )


def _report(text: str) -> Report | None:
    try:
        return msgspec.json.decode(text, type=Report)
    except DECODE_ERRORS:
        return None


def _progress_in(log: list[str]) -> Report:
    """Return the progress that a process prints; it may know more than the recorder."""
    tracker = Tracker()
    for line in log:
        tracker.feed(line, 0.0)
    found = tracker.progress
    return Report(step=found.step or 0, total=found.steps, loss=found.loss) if found else Report()


async def pod_environment(job: ClusterJob, pod: Pod, process: int) -> dict[str, str]:
    """Return the environment that the launcher gave to a process of a running pod. Raises ClientError."""
    name = ranks.rank_of(job.state.name, pod.metadata.name)
    if pod.status.phase != "Running":
        raise ClientError(
            f"the environment of a process can be read while {name} runs, and it is "
            f"{ranks.state_of(job.state, pod)}; --rank {name} shows the environment of its container"
        )
    return parse_environment(await run_in_pod(job, pod, ENVIRONMENT, "", str(process)), name, process)


async def run_environment(job: LocalJob, pod: str, process: int) -> dict[str, str]:
    """Return the environment that the launcher gave to a process of a local run. Raises ClientError."""
    output = await run_here(ENVIRONMENT, str(job.run.launcher_logs(pod)), str(process))
    return parse_environment(output, ranks.rank_of(job.state.name, pod), process)


def parse_environment(text: str, pod: str, process: int) -> dict[str, str]:
    """Parse an envlog file. Raises ClientError if it is missing or empty.

    The launcher of a restarted container appends to the file, so later values win. A line without a name
    continues the value before it.
    """
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if variable := _VARIABLE.fullmatch(line):
            name, found[variable[1]] = variable.groups()
        elif name:
            found[name] += f"\n{line}"
    if not found:
        raise ClientError(
            f"the launcher of {pod} has not written the environment of process {process}; "
            f"--rank {pod} shows the environment of its container"
        )
    return found
