"""Measure the dashboard in Chromium: first paint, how late a change is seen, 1,000 jobs and 10,000 pods.

    make venv && .venv/bin/python bench/dashboard.py

Jobs are on the in-memory API server, served over HTTP, and pods are run by the simulated kubelet; the
dashboard and the browser are the real ones. Exits with code 1 if a number exceeds its limit; run it on an
idle machine.
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

from client.scene import Scene  # noqa: E402
from paddlejob.api import names  # noqa: E402
from paddlejob.api.resources import PADDLE_JOBS  # noqa: E402
from paddlejob.client.cluster import Cluster  # noqa: E402
from paddlejob.dashboard.server import Dashboard  # noqa: E402
from paddlejob.kube.resource import PODS  # noqa: E402
from simkube.build import job  # noqa: E402
from tests.dashboard.browser import Tab, chromium, tab  # noqa: E402
from tests.support.served_api import ServedCluster, served_cluster  # noqa: E402

PAINTS = 9
CHANGES = 20
CHURNED = 2000
FIRST_PAINT, SECOND = 300.0, 1000.0
FILL_SECONDS = 400.0
HEAP, GROWTH = 60.0, 5.0
"""Milliseconds, and megabytes of JavaScript."""
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


SHOWN = """() => new Promise((done) => {
  const look = (now) => (document.querySelector("a.job") ? done(now) : requestAnimationFrame(look));
  look(performance.now());
})"""
SEEN = """(word) => new Promise((done) => {
  new MutationObserver((_, observer) => {
    if (!document.body.textContent.includes(word)) return;
    observer.disconnect(); done();
  }).observe(document.body, {subtree: true, childList: true, characterData: true});
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


class Bounds:
    """Prints numbers with their limits, and remembers whether one was over."""

    def __init__(self) -> None:
        self.are_kept = True

    def check(self, what: str, value: float, unit: str, limit: float) -> None:
        """Print one number."""
        is_kept = value <= limit
        self.are_kept = self.are_kept and is_kept
        print(f"{'ok  ' if is_kept else 'OVER'} {what}: {value:.0f} {unit} (at most {limit:.0f})", flush=True)


async def measure(jobs_count: int, pods_count: int) -> bool:
    """Print the measurements; return whether all are within their limits."""
    bounds = Bounds()
    with tempfile.TemporaryDirectory() as directory, served_cluster(Path(directory)) as cluster:
        await fill(cluster, jobs_count, pods_count)
        async with (
            chromium() as browser,
            Cluster.open(kubeconfig=cluster.kubeconfig) as jobs,
            Dashboard(jobs) as dashboard,
        ):
            link = await dashboard.serve()
            async with tab(browser, link) as found:
                await found.page.goto(link)
                await found.page.wait_for_selector("a.job")
                await measure_list(bounds, cluster, found, jobs_count)
                if pods_count:
                    await measure_ranks(bounds, cluster, found, pods_count)
    return bounds.are_kept


async def measure_list(bounds: Bounds, cluster: ServedCluster, found: Tab, jobs_count: int) -> None:
    """Measure the page of all jobs, at rest and while jobs change."""
    paints = {"with": [await paint(found) for _ in range(PAINTS)]}
    session = await found.page.context.new_cdp_session(found.page)
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    paints["without"] = [await paint(found) for _ in range(PAINTS)]
    for kind, times in paints.items():
        bounds.check(f"first paint {kind} a cache, median", statistics.median(times), "ms", FIRST_PAINT)
    await found.page.reload()
    print(f"     {jobs_count} jobs shown after {await found.page.evaluate(SHOWN):.0f} ms")
    await found.page.get_by_role("button", name="Name", exact=True).click()
    delays = [await delay(cluster, found) for _ in range(CHANGES)]
    print(f"     change seen, median: {statistics.median(delays):.0f} ms")
    bounds.check("change seen, latest", max(delays), "ms", SECOND)
    await scroll(bounds, found, "list")
    before = await heap(found)
    churning = asyncio.create_task(churn(cluster, jobs_count))
    await scroll(bounds, found, "list while jobs change")
    await churning
    grown = await heap(found) - before
    bounds.check(f"heap of the list after {CHURNED} changes", await heap(found), "MB", HEAP)
    bounds.check("growth of that heap", grown, "MB", GROWTH)


async def measure_ranks(bounds: Bounds, cluster: ServedCluster, found: Tab, pods_count: int) -> None:
    """Measure the page of a job of many pods."""
    began = time.monotonic()
    await found.open("jobs/default/large/ranks")
    await found.page.get_by_role("tab", name=f"Ranks {pods_count}").wait_for()
    print(f"     {pods_count} ranks shown after {time.monotonic() - began:.1f} s")
    await scroll(bounds, found, f"{pods_count} ranks")
    before = await heap(found)
    for page in ("ranks", "overview"):
        await found.open(f"jobs/default/large/{page}")
        churning = asyncio.create_task(churn_pods(cluster, pods_count))
        await scroll(bounds, found, f"{page} while pods change")
        await churning
    bounds.check("heap of the ranks", await heap(found), "MB", HEAP)
    bounds.check("growth of that heap", await heap(found) - before, "MB", GROWTH)


async def paint(found: Tab) -> float:
    """Return the milliseconds from the request until the jobs' page is first painted."""
    await found.page.reload()
    await found.page.wait_for_selector("a.job")
    shown: float = await found.page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    return shown


async def scroll(bounds: Bounds, found: Tab, what: str) -> None:
    """Scroll for some seconds and check for how long nothing was drawn."""
    gaps = await found.page.evaluate(FRAMES)
    rows = await found.page.evaluate("document.querySelectorAll('*').length")
    print(f"     scrolling, {what}: {len(gaps) / 4:.0f} frames a second, {rows} elements")
    bounds.check(f"scrolling, {what}: longest pause", max(gaps), "ms", SECOND)


async def churn(cluster: ServedCluster, jobs_count: int) -> None:
    """Change the status of one job after the other."""
    for number in range(CHURNED):
        name = f"job-{number % jobs_count:05}"
        patch = {"status": {"phase": "Pending", "message": f"change {number}"}}
        await do(
            cluster,
            lambda scene, name=name, patch=patch: scene.client.patch(
                PADDLE_JOBS, "default", name, patch, subresource="status"
            ),
        )


async def churn_pods(cluster: ServedCluster, pods_count: int) -> None:
    """Change the status of many pods of the large job."""

    async def change(scene: Scene) -> None:
        for number in range(CHURNED):
            patch = {"status": {"reason": f"Change{number}"}}
            name = f"large-worker-{number % pods_count}"
            await scene.client.patch(PODS, "default", name, patch, subresource="status")

    await asyncio.to_thread(cluster.do, change, FILL_SECONDS)


async def fill(cluster: ServedCluster, jobs_count: int, pods_count: int) -> None:
    """Create jobs of another controller, and pods of one of them."""

    async def create(scene: Scene) -> None:
        theirs = [job(f"job-{number:05}").worker(1) for number in range(jobs_count)]
        for built in (*theirs, job("large").worker(5000)):
            await scene.submit(built.spec(managedBy="example.org/other"))
        uid = (await scene.cluster.get("large")).state.metadata.uid
        for number in range(pods_count):
            await scene.client.create(PODS, "default", owned_pod(uid, number))
        if pods_count:
            await scene.runs(f"large-worker-{pods_count - 1}")

    await asyncio.to_thread(cluster.do, create, FILL_SECONDS)


async def do(cluster: ServedCluster, work):
    """Run a function in the thread of the cluster."""
    return await asyncio.to_thread(cluster.do, work)


async def delay(cluster, found) -> float:
    """Return the milliseconds from a change of a job's status until the browser shows it."""
    word = f"changed-{time.monotonic_ns()}"
    # Playwright itself looks for a text only twice a second.
    waiting = asyncio.create_task(found.page.evaluate(SEEN, word))
    await asyncio.sleep(0.3)
    patch = {"status": {"phase": "Pending", "message": word}}
    began = time.monotonic()
    await do(
        cluster,
        lambda scene: scene.client.patch(PADDLE_JOBS, "default", "job-00000", patch, subresource="status"),
    )
    await waiting
    return 1000 * (time.monotonic() - began)


async def heap(found: Tab) -> float:
    """Return the megabytes of the page after a collection."""
    client = await found.page.context.new_cdp_session(found.page)
    await client.send("HeapProfiler.collectGarbage")
    used: float = (await client.send("Runtime.getHeapUsage"))["usedSize"]
    await client.detach()
    return used / 1e6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    arguments = parser.parse_args()
    sys.exit(not asyncio.run(measure(arguments.jobs, arguments.pods)))
