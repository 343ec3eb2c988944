"""The cost of recorder reports for the operator: the highest rate, and its CPU time with 1,000 ranks.

    PYTHONPATH=. python bench/bench_reports.py [--ranks 1000]

A job with `--ranks` workers runs on a real API server. Each pod sends the recorder's reports with its token:
first with tokens that are not yet reviewed, at the limited rate of reviews; then over a new connection for
each report; then over one connection that is kept open. The senders run on the same machine.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from process import Process, running

from devcluster import Cluster, ControlPlane
from paddlejob.api import names
from paddlejob.operator.reports import tokens
from paddlejob.recorder.operator_sink import OperatorSink
from paddlejob.training import report_rate
from simkube.build import job

THREADS = 16
NAMESPACE = "/api/v1/namespaces/default"
JOBS = "/apis/batch.paddlepaddle.org/v1/namespaces/default/paddlejobs"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def await_pods(plane: Cluster, ranks: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        pods: list[dict[str, Any]] = plane.request("GET", f"{NAMESPACE}/pods")["items"]
        if len(pods) == ranks:
            return pods
        time.sleep(1)
    raise SystemExit(f"fewer than {ranks} pods after five minutes")


def sinks(plane: Cluster, pods: list[dict[str, Any]], url: str, directory: Path) -> list[OperatorSink]:
    """Create the files that the kubelet would mount into each pod."""
    listed = plane.request("GET", f"{NAMESPACE}/configmaps")["items"]
    authority = next(
        each["data"]["ca.crt"] for each in listed if each["metadata"]["name"].startswith(names.RECORDER)
    )

    def sink(pod: dict[str, Any]) -> OperatorSink:
        metadata = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"audiences": [names.RECORDER], "expirationSeconds": 3600, "boundObjectRef": bound}
        answer = plane.request("POST", f"{NAMESPACE}/serviceaccounts/default/token", {"spec": spec})
        place = directory / metadata["name"]
        place.mkdir()
        (place / "token").write_text(answer["status"]["token"])
        (place / "ca.crt").write_text(authority)
        return OperatorSink(url, str(place))

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(sink, pods))


def measure(title: str, operator: Process, reporters: list[OperatorSink], *, step: int, keep: bool) -> None:
    def send(numbered: tuple[int, OperatorSink]) -> bool:
        rank, reporter = numbered
        reporter.send({"rank": rank, "step": step, "loss": 0.5, "phase": "training", "counted": True})
        taken = reporter._failures == 0  # noqa: SLF001
        if not keep:
            reporter.close()
        return taken

    cpu, began = operator.cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        taken = sum(pool.map(send, enumerate(reporters)))
    seconds, cpu = time.perf_counter() - began, operator.cpu_seconds() - cpu
    rate = min(report_rate.REQUESTS_PER_SECOND, len(reporters) / report_rate.next_seconds(len(reporters)))
    cost = cpu / len(reporters)
    print(
        f"  {title:28} {len(reporters) / seconds:7.0f} reports/s, {1000 * cost:5.2f} ms of CPU each, "
        f"{100 * cost * rate:4.1f} % of a CPU at {rate:.0f}/s; {taken} of {len(reporters)} taken",
        flush=True,
    )


def await_reviews(reporters: list[OperatorSink]) -> None:
    """Let every token be reviewed, at the pace that spares the API server."""
    deadline = time.monotonic() + 2 * len(reporters) / tokens.REVIEWS_PER_SECOND
    with ThreadPoolExecutor(THREADS) as pool:
        while time.monotonic() < deadline:
            list(
                pool.map(
                    lambda reporter: (reporter.send({"rank": 0, "step": 1}), reporter.close()), reporters
                )
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    ranks = parser.parse_args().ranks
    url = f"https://127.0.0.1:{free_port()}"
    with ControlPlane.start() as plane, tempfile.TemporaryDirectory() as place:
        plane.apply(Path("deploy/v1/crd.yaml"))
        plane.await_found(f"{NAMESPACE}/serviceaccounts/default")
        flags = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--progress-from-logs=false"]
        flags += [f"--kubeconfig={plane.kubeconfig}", f"--reports-url={url}"]
        flags += [f"--reports-bind-address={url.removeprefix('https://')}"]
        with running("-m", "paddlejob", "operator", *flags, log=Path(place) / "operator.log") as operator:
            plane.request("POST", JOBS, job().worker(ranks).spec(recorder=True).manifest)
            reporters = sinks(plane, await_pods(plane, ranks), url, Path(place))
            print(f"{ranks} ranks, asked to report every {report_rate.next_seconds(ranks):.0f} s:")
            measure("tokens not seen before", operator, reporters, step=1, keep=False)
            await_reviews(reporters)
            measure("a new connection each", operator, reporters, step=2, keep=True)
            measure("connections that are kept", operator, reporters, step=3, keep=False)
            print(f"  memory of the operator at most: {operator.memory_megabytes('VmHWM'):.0f} MB")


if __name__ == "__main__":
    main()
