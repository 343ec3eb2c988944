"""Measure the dashboard in Chromium: first paint, how late a change is seen, and a thousand jobs.

    make venv && .venv/bin/python bench/dashboard.py

Jobs are on the in-memory API server, served over HTTP; the dashboard and the browser are the real ones.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from paddlejob.api import names  # noqa: E402
from paddlejob.client.cluster import Cluster  # noqa: E402
from paddlejob.dashboard.server import Dashboard  # noqa: E402
from paddlejob.kube.resource import PODS  # noqa: E402
from paddlejob.operator.resources import PADDLE_JOBS  # noqa: E402
from paddlejob.testing.build import job  # noqa: E402
from tests.dashboard.browser import chromium, tab  # noqa: E402
from tests.support.served_api import ServedCluster, served_cluster  # noqa: E402

CHANGES = 20
FRAMES = """() => new Promise((done) => {
  const gaps = []; let last = performance.now(), end = last + 4000;
  const step = (now) => {
    gaps.push(now - last); last = now;
    scrollBy(0, 120);
    if (scrollY + innerHeight >= document.body.scrollHeight) scrollTo(0, 0);
    now < end ? requestAnimationFrame(step) : done(gaps);
  };
  requestAnimationFrame(step);
})"""


def owned_pod(uid: str, number: int) -> dict:
    """Return a running pod of the large job."""
    owner = {
        "apiVersion": PADDLE_JOBS.api_version,
        "kind": PADDLE_JOBS.kind,
        "name": "large",
        "uid": uid,
        "controller": True,
    }
    labels = {names.LABEL_JOB: "large", names.LABEL_RESOURCE_TYPE: "worker"}
    return {
        "metadata": {"name": f"large-worker-{number}", "labels": labels, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }


async def measure(jobs_count: int, pods_count: int) -> None:
    """Print what was measured."""
    with tempfile.TemporaryDirectory() as directory, served_cluster(Path(directory)) as cluster:
        await fill(cluster, jobs_count, pods_count)
        async with (
            chromium() as browser,
            Cluster.open(kubeconfig=cluster.kubeconfig) as jobs,
            Dashboard(jobs) as dashboard,
        ):
            await asyncio.sleep(2)
            link = await dashboard.serve()
            async with tab(browser, link) as found:
                await found.page.goto(link)
                await found.page.wait_for_selector("a.job")
                await found.page.reload()
                await found.page.wait_for_selector("a.job")
                paint = await found.page.evaluate(
                    "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                )
                print(f"first paint of {jobs_count} jobs: {paint:.0f} ms")
                await found.page.get_by_role("button", name="Name", exact=True).click()
                delays = [await delay(cluster, found) for _ in range(CHANGES)]
                print(
                    f"change seen after: median {statistics.median(delays):.0f} ms, most {max(delays):.0f} ms"
                )
                gaps = await found.page.evaluate(FRAMES)
                print(f"scrolling: {len(gaps) / 4:.0f} frames a second, longest gap {max(gaps):.0f} ms")
                await memory(found, "list")
                if pods_count:
                    began = time.monotonic()
                    await found.open("jobs/default/large/ranks")
                    await found.page.get_by_role("tab", name=f"Ranks {pods_count}").wait_for()
                    print(f"{pods_count} ranks shown after {time.monotonic() - began:.1f} s")
                    gaps = await found.page.evaluate(FRAMES)
                    print(f"scrolling: {len(gaps) / 4:.0f} frames a second, longest gap {max(gaps):.0f} ms")
                    await memory(found, "ranks")


async def fill(cluster: ServedCluster, jobs_count: int, pods_count: int) -> None:
    """Create jobs of another controller, and pods of one of them."""
    theirs = [job(f"job-{number:05}").worker(1) for number in range(jobs_count)]
    for built in (*theirs, job("large").worker(5000)):
        await do(cluster, lambda scene, built=built: scene.submit(built.spec(managedBy="example.org/other")))
    uid = (await do(cluster, lambda scene: scene.cluster.get("large"))).state.metadata.uid
    for number in range(pods_count):
        pod = owned_pod(uid, number)
        await do(cluster, lambda scene, pod=pod: scene.client.create(PODS, "default", pod))


async def do(cluster: ServedCluster, work):
    """Do something inside the cluster, which has a thread of its own."""
    return await asyncio.to_thread(cluster.do, work)


async def delay(cluster, found) -> float:
    """Return the milliseconds from a change of a job's status until the browser shows it."""
    word = f"changed-{time.monotonic_ns()}"
    waiting = asyncio.create_task(found.page.get_by_text(word).wait_for())
    await asyncio.sleep(0.3)
    patch = {"status": {"phase": "Pending", "message": word}}
    began = time.monotonic()
    await do(
        cluster,
        lambda scene: scene.client.patch(PADDLE_JOBS, "default", "job-00000", patch, subresource="status"),
    )
    await waiting
    return 1000 * (time.monotonic() - began)


async def memory(found, where: str) -> None:
    """Print the heap of the page after a collection."""
    client = await found.page.context.new_cdp_session(found.page)
    await client.send("HeapProfiler.collectGarbage")
    used = (await client.send("Runtime.getHeapUsage"))["usedSize"]
    rows = await found.page.evaluate("document.querySelectorAll('*').length")
    print(f"{where}: heap {used / 1e6:.1f} MB, {rows} elements")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.jobs, arguments.pods))
