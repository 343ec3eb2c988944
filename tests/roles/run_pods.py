"""Runs pods in a network of their own; started by test_ipv6.py as root of new namespaces.

run_pods.py DIRECTORY    reads DIRECTORY/pods.json; leaves DIRECTORY/<pod>.log; exits 0 if all workers did
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def lay_network(hosts: dict[str, list[str]], directory: Path) -> None:
    """Give this machine the addresses of all pods, and let their names lead there, as a DNS would."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in (address for addresses in hosts.values() for address in addresses):
        prefix, options = ("128", ["nodad"]) if ":" in address else ("32", [])
        subprocess.run(["ip", "addr", "add", f"{address}/{prefix}", "dev", "lo", *options], check=True)
    names = [f"{address} {name}" for name, addresses in hosts.items() for address in addresses]
    own = [f"{address} {os.uname().nodename}" for address in next(iter(hosts.values()))]
    table = directory / "hosts"
    table.write_text("\n".join(["127.0.0.1 localhost", "::1 localhost", *own, *names]) + "\n")
    subprocess.run(["mount", "--bind", str(table), "/etc/hosts"], check=True)


def main() -> int:
    directory = Path(sys.argv[1])
    told = json.loads((directory / "pods.json").read_text())
    lay_network(told["hosts"], directory)
    # Volumes of pods are mounted below it.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/log"], check=True)
    running = {}
    for pod, environment in told["pods"].items():
        with (directory / f"{pod}.log").open("w") as log:
            running[pod] = subprocess.Popen(
                told["command"], env=environment, cwd=told["cwd"], stdout=log, stderr=subprocess.STDOUT
            )
    workers = [process for pod, process in running.items() if pod.startswith("worker")]
    deadline = time.monotonic() + told["seconds"]
    while time.monotonic() < deadline and any(process.poll() is None for process in workers):
        if any(process.poll() for process in running.values()):
            break  # one that failed is enough to know
        time.sleep(0.1)
    # What still runs ends with the namespace, whose first process this is.
    return int(any(process.poll() != 0 for process in workers))


sys.exit(main())
