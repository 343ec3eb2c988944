"""Where the processes of a job are: the recorder in them writes their stacks when a signal comes.

A shell asks it, in the container or for a local run on this machine, so that neither the operator nor Python
is needed, and a process need not be able to run Python code.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.names import RECORDER_MOUNT
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Role
from paddlejob.client import errors, ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.streams.execution import ContainerCommand, execute
from paddlejob.core.recording import stacks
from paddlejob.kube.errors import ForbiddenError, KubeError, UnauthorizedError
from paddlejob.recorder.sender import PROGRESS_FILE
from paddlejob.recorder.stacks import NAME, SIGNAL

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob
    from paddlejob.client.job import Job
    from paddlejob.client.local_runs import LocalJob

AT_ONCE = 16
MOST_BYTES = 65536
WAIT_SECONDS = 5

# Prints a line and the stacks for each process of this container, which may see all processes of the node.
# With an argument: for each process of this user that reports to that file.
# The signal is sent only to a process that holds the file and handles it: any other would be ended by it.
# The file is opened once and examined through that descriptor before it is emptied. A process may replace its
# descriptor by any file that it can read, and a root user could empty that one.
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
  tail -c {MOST_BYTES} "/proc/$pid/fd/$fd" 2>/dev/null
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
    """Where a process is, as faulthandler writes it, or why that is not known."""

    name: str
    """worker-1; where a pod has several processes worker-1 rank 3."""
    dump: str = ""
    trouble: str = ""


async def of_pods(job: ClusterJob, rank: str) -> list[ProcessStack]:
    """Ask in the containers, through the API server."""

    async def ask(pod: Pod) -> str:
        output: list[bytes] = []
        command = ContainerCommand(
            words=("sh", "-c", SCRIPT), on_stdout=output.append, on_stderr=output.append
        )
        container = ranks.training_container(job.state, pod)
        await execute(job.client, job.namespace, pod.metadata.name, container, command)
        return b"".join(output).decode(errors="replace")

    # Servers have no recorder.
    found = await _collect(job, rank, ask)
    return [each for each in found if rank != "all" or not each.name.startswith(f"{Role.PS}-")]


async def of_run(job: LocalJob, rank: str) -> list[ProcessStack]:
    """Ask the processes of a local run."""

    async def ask(pod: Pod) -> str:
        file = str(job.run.progress(pod.metadata.name))
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", SCRIPT, "sh", file), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await shell.communicate()
        text = output.decode(errors="replace")
        return text.replace("no-recorder", "no-process", 1)

    return await _collect(job, rank, ask)


async def _collect(job: Job, rank: str, ask: Callable[[Pod], Awaitable[str]]) -> list[ProcessStack]:
    ranks.check(job.state, rank)
    chosen = ranks.select(job.state, await job.pods(), rank)
    pods = [pod for pod in chosen if pod.status.phase == "Running"]
    if not pods:
        raise ClientError(f"no pod of {job.name} runs now: it is {job.state.status.phase or 'Pending'}")
    gate = asyncio.Semaphore(AT_ONCE)

    async def stacks_of(pod: Pod) -> list[ProcessStack]:
        name = ranks.rank_of(job.state.name, pod.metadata.name)
        async with gate:
            try:
                return list(_parsed(name, await ask(pod)))
            except (ForbiddenError, UnauthorizedError):
                raise
            except (ClientError, KubeError) as error:
                return [ProcessStack(name, trouble=f"cannot be asked: {errors.sentence(error)}")]

    found = [each for some in await asyncio.gather(*map(stacks_of, pods)) for each in some]
    troubles = {each.trouble for each in found}
    if troubles <= {NO_RECORDER, NO_PROCESS} and NO_RECORDER in troubles:
        raise ClientError(f"{job.name} {NO_RECORDER}")
    return found


def _parsed(name: str, output: str) -> Iterator[ProcessStack]:
    _, *parts = _HEAD.split(output)
    if not parts:
        yield ProcessStack(name, trouble=NO_RECORDER if "no-recorder" in output else NO_PROCESS)
    processes = list(zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True))
    of_rank = Counter(rank for _, rank, _, _ in processes)
    for pid, rank, state, dump in processes:
        label = name if len(processes) == 1 else f"{name} rank {rank}"
        label = label if of_rank[rank] == 1 else f"{label} (process {pid})"
        yield ProcessStack(label, dump.strip(), "" if dump.strip() else _silence(pid, state))


def _silence(pid: str, state: str) -> str:
    if state in "Tt":
        return f"is stopped by a signal or a debugger; `kill -CONT {pid}` there lets it go on"
    return f"did not answer within {WAIT_SECONDS}s (process {pid}, state {state})"


def in_words(processes: Iterable[ProcessStack], *, all_threads: bool = False) -> str:
    """Return the stacks for people: one for all whose main threads are at the same place, most first."""
    every = list(processes)
    lines: list[str] = []
    for names, dump in stacks.grouped((each.name, each.dump) for each in every if not each.trouble):
        main, *others = stacks.threads(dump) or [()]
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
