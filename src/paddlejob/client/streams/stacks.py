"""Read the stacks of the processes of a job. The recorder in each process writes them on a signal.

A shell script sends the signal, in the container or on this machine for a local run. It needs neither the
operator nor Python, and works for a process that cannot run Python code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import RECORDER_MOUNT
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Role
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.streams.pod_scripts import ask_each, run_here, run_in_pod, running_pods
from paddlejob.recorder.sender import PROGRESS_FILE
from paddlejob.recorder.stacks import NAME, SIGNAL
from paddlejob.training import stacks

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob
    from paddlejob.client.job import Job
    from paddlejob.client.local_runs import LocalJob

MAX_BYTES = 65536
WAIT_SECONDS = 5
TIMEOUT_SECONDS = 60.0

# Prints a line and the stacks for each process of this container, which may see all processes of the node.
# With an argument: for each process of this user that reports to that file.
# The signal is sent only to a process that holds the file and handles the signal: it would end any other.
# The file is opened once and checked through that descriptor before it is truncated. A process may replace
# its descriptor by any file that it can read, and root could truncate that one.
SCRIPT = rf"""
found=$(ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n \
  -e '/^\/proc\//{{s|^/proc/\([0-9]*\)/.*|\1|;h;}}' \
  -e '/memfd:{NAME}-/{{s|.* \([0-9]*\) -> /memfd:{NAME}-\([0-9]*\)-\([0-9]*\) .*|\1 \2 \3|;G;s/\n/ /;p;}}')
user=$(id -u)
asked=$(echo "$found" | while read -r fd named rank pid; do (
  cd "/proc/$pid" || exit
  own=$(sed -n 's/^NSpid:.*[^0-9]\([0-9][0-9]*\)$/\1/p' status)
  [ "${{own:-$pid}}" = "$named" ] || exit
  if [ -z "$1" ]; then
    [ "$(readlink ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ] || exit
  else
    users=$(sed -n 's/^Uid:[^0-9]*//p' status | tr '\t' ' ')
    [ "$users" = "$user $user $user $user" ] || exit
    tr '\0' '\n' <environ | grep -qxF "{PROGRESS_FILE}=$1" || exit
  fi
  grep -q '^SigCgt:.[0-9a-f][89a-f]' status || exit
  exec 3<>"fd/$fd"
  [ "$(readlink /proc/self/fd/3)" = "/memfd:{NAME}-$named-$rank (deleted)" ] || exit
  [ "$(stat -Lc %h /proc/self/fd/3)" = 0 ] || exit
  : >/proc/self/fd/3 && kill -{SIGNAL} "$pid" && echo "$pid $fd $rank"
) done 2>/dev/null)
if [ -z "$asked" ]; then
  if [ -e {RECORDER_MOUNT} ]; then echo no-process; else echo no-recorder; fi
  exit
fi
sizes() {{
  echo "$asked" | while read -r pid fd rank; do
    grep -q '^State:.[Tt]' "/proc/$pid/status" || wc -c <"/proc/$pid/fd/$fd"
  done 2>/dev/null
}}
before=
for _ in $(seq {5 * WAIT_SECONDS}); do
  sleep 0.2
  now=$(sizes)
  [ "$now" = "$before" ] && ! echo "$now" | grep -qx ' *0' && break
  before=$now
done
echo "$asked" | while read -r pid fd rank; do
  state=$(sed -n 's/^State:[^A-Za-z]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
  echo "paddlejob-stack $pid $rank ${{state:-X}}"
  tail -c {MAX_BYTES} "/proc/$pid/fd/$fd" 2>/dev/null
  echo
done
"""
_HEAD = re.compile(r"^paddlejob-stack (\d+) (\d+) (\w)\n", re.MULTILINE)
NO_RECORDER = "runs without the recorder: set spec.recorder to true and submit it again"
NO_PROCESS = (
    "has no Python process with the recorder: it has not started one yet, or starts it with -S, -E or -I, "
    "or replaces PYTHONPATH"
)


class ProcessStack(msgspec.Struct, frozen=True):
    """The stack of a process in the format of faulthandler, or why it is unknown."""

    name: str
    """Such as `worker-1`, or `worker-1 rank 3` if the pod has several processes."""
    dump: str = ""
    trouble: str = ""


async def pod_stacks(job: ClusterJob, rank: str) -> list[ProcessStack]:
    """Run the script in the containers, through the API server."""
    found = await _collect(job, rank, lambda pod: run_in_pod(job, pod, SCRIPT))
    # Servers have no recorder.
    return [each for each in found if rank != "all" or not each.name.startswith(f"{Role.PS}-")]


async def run_stacks(job: LocalJob, rank: str) -> list[ProcessStack]:
    """Run the script for the processes of a local run."""

    async def ask(pod: Pod) -> str:
        text = await run_here(SCRIPT, str(job.run.progress(pod.metadata.name)))
        return text.replace("no-recorder", "no-process", 1)

    return await _collect(job, rank, ask)


async def _collect(job: Job, rank: str, ask: Callable[[Pod], Awaitable[str]]) -> list[ProcessStack]:
    pods = await running_pods(job, rank)
    if not pods:
        raise ClientError(f"no pod of {job.name} runs now: it is {job.state.status.phase or 'Pending'}")
    found: list[ProcessStack] = []
    number = "" if ranks.place_of(job.state, rank).process is None else str(int(rank))
    for pod, output, trouble in await ask_each(pods, ask, timeout_seconds=TIMEOUT_SECONDS):
        name = ranks.rank_of(job.state.name, pod.metadata.name)
        found += [ProcessStack(name, trouble=trouble)] if trouble else _parse(name, output, number)
    troubles = {each.trouble for each in found}
    if troubles <= {NO_RECORDER, NO_PROCESS} and NO_RECORDER in troubles:
        raise ClientError(f"{job.name} {NO_RECORDER}")
    return found


def _parse(name: str, output: str, only_rank: str = "") -> Iterator[ProcessStack]:
    _, *parts = _HEAD.split(output)
    every = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    processes = [each for each in every if only_rank in ("", each[1])]
    if not processes:
        yield ProcessStack(name, trouble=NO_RECORDER if "no-recorder" in output else NO_PROCESS)
    of_rank = Counter(rank for _, rank, _, _ in processes)
    for pid, rank, state, dump in processes:
        label = name if len(processes) == 1 and not only_rank else f"{name} rank {rank}"
        label = label if of_rank[rank] == 1 else f"{label} (process {pid})"
        yield ProcessStack(label, dump.strip(), "" if dump.strip() else _no_answer(pid, state))


def _no_answer(pid: str, state: str) -> str:
    if state in "Tt":
        return f"is stopped by a signal or a debugger; `kill -CONT {pid}` there continues it"
    return f"did not answer within {WAIT_SECONDS}s (process {pid}, state {state})"


def format_stacks(processes: Iterable[ProcessStack], *, all_threads: bool = False) -> str:
    """Return the stacks as text. Processes with the same main thread share one stack; most come first."""
    every = list(processes)
    lines: list[str] = []
    for names, dump in stacks.group_by_stack((each.name, each.dump) for each in every if not each.trouble):
        main, *others = stacks.parse_threads(dump) or [()]
        lines += [f"{', '.join(names)}:", *_frames(main)]
        for thread in others if all_threads else ():
            lines += [f"{names[0]}, another thread:", *_frames(thread)]
    lines += [f"{each.name} {each.trouble}" for each in every if each.trouble]
    return "\n".join(lines)


def _frames(thread: stacks.Thread) -> Iterator[str]:
    for frame in thread:
        yield f'  File "{frame.file}", line {frame.line} in {frame.function}'
    if not thread:
        yield "  no Python code"
