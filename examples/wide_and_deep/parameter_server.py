"""The parameter server's side: builds the same network as the workers, then serves until it is told to end.

Paddle's server loop never returns to Python, so it cannot react to SIGTERM itself.  It runs in a child
process and the parent, which stays small, decides when it ends.  When a whole job is stopped, all pods get
SIGTERM at once; a server that left right away would take the parameters with it before the workers could
save them.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from train import Settings

ESTABLISHED = "01"  # of the kernel's TCP states
TERMINATED = 128 + signal.SIGTERM


def main(settings: Settings) -> int:
    """Serves in a child process; returns the exit code of this pod."""
    watched = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    server = os.fork()
    if server == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
        serve(settings)
        os._exit(0)
    if signal.sigwait(watched) == signal.SIGTERM:
        wait_for_workers_to_leave(settings.stop_timeout_seconds)
        end(server)
        return TERMINATED
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    return code if code >= 0 else 128 - code


def serve(settings: Settings) -> None:
    import paddle.distributed.fleet as fleet
    import worker

    # The parent decides when to end.  After the import, because paddle sets a handler of its own.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker.join_job()
    worker.build_network(settings)
    with worker.quiet():
        fleet.init_server()
    print(f"parameter server {fleet.server_index()} of {fleet.server_num()} is starting", flush=True)
    fleet.run_server()


def wait_for_workers_to_leave(timeout_seconds: float) -> None:
    """Returns when no worker is connected: at once after a job, in seconds when the workers save first."""
    deadline = time.monotonic() + timeout_seconds
    while connections(os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])) and time.monotonic() < deadline:
        time.sleep(0.1)


def connections(host: str, port: int, table: Path = Path("/proc/net/tcp")) -> int:
    """How many clients are connected to this server, as the kernel's table of this pod's network tells."""
    # With `intranet: Service` a pod is known to its peers, and to itself, by a name.
    ip = socket.gethostbyname(host)
    address = f"{socket.inet_aton(ip)[::-1].hex()}:{port:04x}".upper()
    rows = [line.split() for line in table.read_text().splitlines()[1:]]
    return sum(1 for _, local, _, state, *_ in rows if local == address and state == ESTABLISHED)


def end(server: int) -> None:
    """Ends the child and the small processes that paddle starts beside it for the workers' first meeting."""
    for pid in list(family(server)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return
    for child in children:
        yield from family(int(child))
