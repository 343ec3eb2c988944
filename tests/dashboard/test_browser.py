"""Every page in a real browser, over real local runs."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from playwright.async_api import expect

from local.jobs import LAUNCHER, job, role, text
from paddlejob.client.cluster import Cluster
from paddlejob.dashboard.server import Dashboard
from paddlejob.history.record import Point
from paddlejob.kube.resource import EVENTS
from simkube.build import job as build
from tests.dashboard.browser import Tab, chromium, tab
from tests.dashboard.test_activity import hang
from tests.dashboard.test_cluster import GONE, RECORD, keep
from tests.dashboard.test_streams import FAILS
from tests.support.served_api import ServedCluster, served_cluster

pytestmark = pytest.mark.browser

TRAINS = """
i=0; [ "$PADDLEJOB_ATTEMPT" = 0 ] && last=40 || last=120
report() { echo '{"time": '$(date +%s.%N)', "phase": "'$1'", "step": '$i'}' >> $PADDLEJOB_PROGRESS_FILE; }
while [ $i -lt $last ]; do i=$((i + 1)); awk -v i=$i -v r=$PADDLE_TRAINER_ID 'BEGIN {
  printf "INFO: epoch [1/2] step %d/200 - loss: %.4f - ips: %.1f samples/s\\n",
    i, 2.2 * exp(-i / 45) + 0.06 * sin(i * 1.7) + 0.35, 1180 + 60 * sin(i / 7 + r) }'; sleep 0.02
  case $i in 10|20|70|119) report training;; 60) report saving;; esac; done
[ "$PADDLEJOB_ATTEMPT" = 0 ] && [ $PADDLE_TRAINER_ID = 1 ] && exit 137
trap 'exit 0' TERM; while :; do sleep 0.1; done
"""
BAD_BATCH = """
echo "INFO: epoch [1/3] step 12/400 - loss: 1.8930"; echo "Traceback (most recent call last):"
echo '  File "train.py", line 31, in <module>'; echo "ValueError: batch_size 48 does not divide 512"; exit 3
"""
TOGETHER = """
d=$(dirname $PADDLEJOB_PROGRESS_FILE); touch $d/done-$PADDLE_TRAINER_ID
until [ -e $d/done-0 ] && [ -e $d/done-1 ]; do sleep 0.05; done
"""
"""The first of two that fails ends the other, which may not have written all by then."""
EARLIER = msgspec.structs.replace(GONE, name="earlier", uid="9876543", ended=GONE.created)
TABS = ("overview", "logs", "ranks", "events", "manifest")


@pytest.fixture
async def browser():
    async with chromium() as found:
        yield found


@pytest.fixture
async def link(runs) -> AsyncIterator[str]:
    async with Dashboard(runs) as dashboard:
        yield await dashboard.serve()


@pytest.fixture
async def page(browser, link) -> AsyncIterator[Tab]:
    """The page of all runs; what must never happen in it is checked when the test is over."""
    async with tab(browser, link) as found:
        await found.page.goto(link)
        yield found
        assert found.errors == []
        assert found.foreign == []


@contextlib.asynccontextmanager
async def cluster_tab(browser, cluster: ServedCluster) -> AsyncIterator[Tab]:
    """Open a tab for the dashboard of a cluster."""
    async with (
        Cluster.open(kubeconfig=cluster.kubeconfig) as jobs,
        Dashboard(jobs) as dashboard,
        tab(browser, await dashboard.serve()) as found,
    ):
        yield found


async def training(runs, name="resnet50", workers=4):
    """Start a job whose worker-1 fails once, and wait for its second attempt to be far on."""
    demo = await runs.submit(
        job(name, worker=role(workers, TRAINS), restartPolicy={"delaySeconds": 0, "maxDelaySeconds": 0})
    )
    async with asyncio.timeout(60):
        async for current in demo.watch_with_pods():
            progress = current.state.status.progress
            if current.state.status.attempt == 1 and progress and progress.step == 120:
                return demo
    raise AssertionError("the run ended")


async def failed(runs, name="bert-finetune", script=BAD_BATCH):
    demo = await runs.submit(job(name, worker=role(2, script), backoffLimit=0))
    await demo.wait(timeout_seconds=60)
    return demo


async def test_every_page_is_alive_clean_and_within_the_window(runs, page):
    browser = page.page
    await expect(browser.get_by_role("heading", name="No runs on this machine yet")).to_be_visible()
    assert "token" not in browser.url
    assert await page.violations() == []
    done = await runs.submit(
        job("mnist", worker=role(2, "echo epoch 1/1 step 9/9 loss: 0.02; echo done acc 0.98"))
    )
    await done.wait(timeout_seconds=60)
    broken = await failed(runs)
    demo = await training(runs)
    rows = browser.locator("table.jobs tbody tr")
    await expect(rows).to_have_count(3)
    await expect(rows.filter(has_text="resnet50")).to_contain_text("30%")
    await expect(rows.filter(has_text="bert-finetune")).to_contain_text("ValueError: batch_size 48")
    assert await page.violations() == []
    await page.picture("jobs")

    await page.open(f"jobs/default/{broken.name}")
    await expect(browser.locator(".sentence")).to_contain_text("exited with code 3: ValueError")
    await expect(browser.locator(".attempts tbody tr")).to_have_count(1)
    assert await page.violations() == []
    await page.picture("failed")
    for name in TABS:
        await page.open(f"jobs/default/{demo.name}/{name}")
        await expect(browser.get_by_role("tab", selected=True)).to_have_id(f"tab-{name}")
        sign = {"overview": ".chart canvas", "logs": ".line", "manifest": "pre"}.get(name, "tbody tr")
        await expect(browser.locator(f"#panel {sign}").first).to_be_visible()
        if name == "overview":
            restart = browser.locator(".attempts tbody tr").nth(1)
            await expect(restart).to_contain_text("exited with code 137")
            await expect(restart).to_contain_text("Recovery: Recreate")
            await expect(browser.locator(".strip > div")).to_have_count(4)
            await expect(browser.locator(".legend").first).to_contain_text("PendingRunningRestarting")
            for state in ("training", "saving"):
                await expect(browser.locator(".legend").last).to_contain_text(state)
        assert await page.violations() == [], name
        if picture := {"overview": "job", "logs": "logs"}.get(name):
            await page.picture(picture)
    for name in ("history", f"history/default/{broken.name}"):
        await page.open(name)
        await expect(browser.get_by_role("heading", level=1)).to_be_visible()
        await expect(browser.get_by_text("ValueError: batch_size 48").first).to_be_visible()
        assert await page.violations() == [], name
    for name in ("new", f"compare?a=default/{demo.name}&b=default/{broken.name}"):
        await page.open(name)
        await expect(browser.get_by_role("heading", level=1)).to_be_visible()
        await expect(browser.locator("textarea, .chart").first).to_be_visible()
        assert await page.violations() == [], name
        if name != "new":
            await page.picture("compare")
    await browser.emulate_media(color_scheme="dark")
    await browser.set_viewport_size({"width": 400, "height": 800})
    others = (
        *("", "new", "history", f"history/default/{broken.name}"),
        f"compare?a=default/{demo.name}&b=default/{broken.name}",
    )
    for name in (*others, *(f"jobs/default/{demo.name}/{each}" for each in TABS)):
        await page.open(name)
        await expect(browser.get_by_role("heading", level=1)).to_be_visible()
        assert await page.overflow() <= 0, name
        assert await page.violations() == [], name
        if not name:
            # Why a job failed is what a phone is taken out for.
            reason = await browser.locator("tr .reason.red").bounding_box()
            assert reason is not None
            assert reason["width"] > 300


async def test_the_list_is_filtered_sorted_and_left_by_keys(runs, page):
    for name in ("alpha", "beta", "gamma"):
        await (await runs.submit(job(name, worker=role(1, "true")))).wait(timeout_seconds=60)
    shown = page.page.locator("a.job")
    await expect(shown).to_have_count(3)
    await page.page.keyboard.press("/")
    await page.page.keyboard.type("bet")
    await expect(shown).to_have_count(1)
    await page.page.keyboard.type("zz")
    await page.page.get_by_role("button", name="Clear filters").click()
    await expect(shown).to_have_count(3)
    await page.page.get_by_role("button", name="Name", exact=True).click()
    await expect(shown.first).to_contain_text("alpha")
    await expect(page.page.get_by_role("columnheader", name="Name")).to_have_attribute(
        "aria-sort", "ascending"
    )
    await page.page.get_by_role("button", name="Name", exact=True).click()
    await expect(shown.first).to_contain_text("gamma")
    await page.page.get_by_role("button", name="Failed 0").click()
    await expect(page.page.get_by_text("No job matches")).to_be_visible()
    await page.page.get_by_role("button", name="All 3").click()
    await page.page.keyboard.press("Escape")
    await page.page.keyboard.press("j")
    await page.page.keyboard.press("j")
    await page.page.keyboard.press("Enter")
    await expect(page.page.get_by_role("heading", level=1)).to_contain_text("beta")
    # The next Tab goes into the page that was opened, not through the header again.
    await expect(page.page.locator("main")).to_be_focused()
    await page.page.keyboard.press("5")
    await expect(page.page.locator("#panel pre")).to_contain_text("kind: PaddleJob")
    await page.page.keyboard.press("Escape")
    await expect(shown).to_have_count(3)
    await page.page.keyboard.press("?")
    await expect(page.page.get_by_role("dialog")).to_contain_text("Back to all jobs")
    await page.page.keyboard.press("Escape")
    await expect(page.page.get_by_role("dialog")).to_have_count(0)


async def test_a_log_is_searched_filtered_and_led_to_its_first_error(runs, page):
    fails = FAILS.replace("exit", f"{TOGETHER}exit")
    script = f'for i in $(seq 1 3000); do echo "line $i of $PADDLE_TRAINER_ID"; done; {fails}'
    demo = await failed(runs, "talkative", script)
    await page.open(f"jobs/default/{demo.name}/logs")
    lines = page.page.locator(".line")
    await expect(page.page.locator(".logbar")).to_contain_text("6006 lines")
    assert await lines.count() < 200
    await page.page.get_by_label("Search the log").fill("line 1500 of 1")
    await page.page.get_by_role("button", name="Next").click()
    await expect(page.page.locator(".line.hit")).to_contain_text("line 1500 of 1")
    await page.page.get_by_label("Matches only").check()
    await expect(lines).to_have_count(1)
    await page.page.get_by_label("Search the log").fill("")
    await page.page.get_by_label("Rank", exact=True).select_option("worker-1")
    await expect(page.page.locator(".logbar")).to_contain_text("3003 lines")
    await page.page.get_by_label("Rank", exact=True).select_option("")
    await page.page.get_by_role("button", name="First error").click()
    await expect(page.page.locator(".line.hit")).to_contain_text("Traceback (most recent call last)")


async def test_what_can_be_undone_is_undone_and_the_rest_is_asked_about(runs, page):
    demo = await training(runs, "demo", workers=2)
    await page.open(f"jobs/default/{demo.name}")
    button = page.page.get_by_role("main").get_by_role("button", exact=True, name="Suspend")
    phase = page.page.locator(".title .phase")
    await button.click()
    await expect(phase).to_have_text("Suspended")
    await page.page.get_by_role("button", name="Undo").click()
    await expect(phase).to_have_text("Running")
    await page.page.get_by_role("button", name="Scale", exact=True).click()
    await page.page.get_by_label("Workers").fill("3")
    await page.page.get_by_role("dialog").get_by_role("button", name="Scale").click()
    await expect(page.page.get_by_role("tab", name="Ranks 3")).to_be_visible()
    await page.page.get_by_role("tab", name="Ranks 3").click()
    await page.page.get_by_role("button", name="Environment of worker-1").click()
    await expect(page.page.get_by_role("dialog")).to_contain_text("PADDLE_TRAINER_ID")
    await page.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await expect(page.page.get_by_role("dialog")).to_have_count(0)
    await page.page.get_by_role("button", name="Stop", exact=True).click()
    await page.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(phase).to_have_text("Running")
    await page.page.get_by_role("button", name="Stop", exact=True).click()
    await page.page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    await expect(phase).to_have_text("Stopped")
    await page.page.get_by_role("button", name="Retry", exact=True).click()
    await expect(phase).to_have_text("Running")
    again = page.page.url.rpartition("/")[2]
    assert again != demo.name
    await page.page.get_by_role("button", exact=True, name="Suspend").click()
    await page.page.get_by_role("main").get_by_role("button", name="Resume").click()
    await expect(phase).to_have_text("Running")
    await (await runs.get(again)).stop()
    await page.open("")
    await expect(page.page.get_by_role("button", name="Failed 2")).to_be_visible()
    for name in (again, demo.name):
        await page.open(f"jobs/default/{name}")
        await page.page.get_by_role("button", name="Delete", exact=True).click()
        await page.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.page.get_by_text(f"{name}: deleted")).to_be_visible()
    await expect(page.page.get_by_role("heading", name="No runs on this machine yet")).to_be_visible()


async def test_a_job_is_checked_as_one_types_and_then_run(page):
    await page.open("new")
    await expect(page.page.get_by_text("No problems found.")).to_be_visible()
    await page.page.get_by_label("YAML").fill(text(job(werker=role(1))))
    await expect(page.page.get_by_role("listitem")).to_contain_text(["werker"])
    await expect(page.page.get_by_role("button", name="Run")).to_be_disabled()
    await page.page.get_by_label("YAML").fill(text(job("mine", worker=role(1, "echo hello"))))
    await page.page.get_by_role("button", name="Run").click()
    await expect(page.page.locator(".title .phase")).to_have_text("Completed")
    await expect(page.page.get_by_role("heading", level=1)).to_contain_text("mine-")


async def test_what_a_program_prints_is_text(runs, page):
    evil = "<img src=x onerror=document.title=1><script>document.title=2</script>"
    script = f"echo '{evil}'; echo '{evil}' >&2; exit 1"
    demo = await failed(runs, "evil", script)
    for name in TABS:
        await page.open(f"jobs/default/{demo.name}/{name}")
        await expect(page.page.locator("#panel")).not_to_be_empty()
    await page.open(f"jobs/default/{demo.name}/logs")
    await expect(page.page.locator(".line").first).to_contain_text(evil)
    assert await page.page.locator("img:not([alt=''])").count() == 0
    assert await page.page.title() == f"{demo.name} · PaddleJob"


async def test_the_ranks_of_a_pod_open_its_processes(runs, page):
    demo = await runs.submit(job("cards", worker=role(2, LAUNCHER)))
    await demo.wait(timeout_seconds=60)
    await page.open(f"jobs/default/{demo.name}/ranks")
    await page.page.get_by_role("button", name="Processes of worker-1").click()
    rows = page.page.locator("dialog .processes tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(1)).to_contain_text("hello from 1 of 1")
    assert await page.violations() == []


async def test_all_is_said_in_chinese_to_who_reads_chinese(runs, browser, link):
    await (await runs.submit(job("mnist", worker=role(1, "true")))).wait(timeout_seconds=60)
    async with tab(browser, link, locale="zh-CN") as found:
        await found.page.goto(link)
        await expect(found.page.locator(".phase")).to_have_text("已完成")
        assert await found.page.locator("html").get_attribute("lang") == "zh-CN"
        await found.page.get_by_label("语言").select_option("en")
        await expect(found.page.locator(".phase")).to_have_text("Completed")


async def test_a_server_that_is_gone_is_told_and_a_second_browser_gets_nothing(runs, browser):
    await (await runs.submit(job("mnist", worker=role(1, "true")))).wait(timeout_seconds=60)
    async with contextlib.AsyncExitStack() as stack:
        link = await (await stack.enter_async_context(Dashboard(runs))).serve()
        async with tab(browser, link) as found, tab(browser, link) as other:
            await found.page.goto(link)
            await expect(found.page.locator("a.job")).to_have_count(1)
            await other.page.goto(link)
            await expect(other.page.locator("body")).to_contain_text("This page is private")
            await stack.aclose()
            await expect(found.page.get_by_role("alert")).to_contain_text("Connection lost")
            await expect(found.page.locator("a.job")).to_have_count(1)
            assert await found.violations() == []


async def test_a_job_that_is_gone_is_read_and_compared(browser, tmp_path):
    with served_cluster(tmp_path) as cluster:
        curve = tuple(Point(1577836800 + index, 1, index, f"{1 / (index + 1):.4f}") for index in range(30))
        for record in (RECORD, msgspec.structs.replace(RECORD, curve=curve, summary=EARLIER)):
            await keep(cluster, record)
        async with cluster_tab(browser, cluster) as found:
            await found.page.goto(f"{found.link}#/history")
            names = found.page.locator("table.history a.job")
            await expect(names).to_have_count(2)
            await found.page.get_by_label("Filter by name").fill("earl")
            await names.click()
            await expect(found.page.get_by_role("heading", name="earlier")).to_be_visible()
            await expect(found.page.locator(".why")).to_contain_text("worker-1 exited with code 1")
            await expect(found.page.locator("pre.last")).to_contain_text("ValueError: <b>x</b>")
            assert await found.violations() == []
            await found.page.get_by_role("main").get_by_role("link", name="Compare").click()
            await expect(found.page.get_by_label("First job")).to_have_value(
                "~default/earlier-history-9876543"
            )
            await found.page.get_by_label("Second job").select_option(index=1)
            await expect(found.page.locator(".chart canvas")).to_be_visible()
            await expect(found.page.locator("tbody tr").first).to_contain_text("0.0333")
            assert await found.violations() == []
            assert found.errors == []


def hung(message: str) -> dict:
    """Return the event of a hang, later than anything in the browser: it began before and is not over."""
    return {
        "metadata": {"name": "hung"},
        "type": "Warning",
        "reason": "Hung",
        "message": message,
        "involvedObject": {"kind": "PaddleJob", "name": "demo", "namespace": "default"},
        "lastTimestamp": (datetime.now(UTC) + timedelta(minutes=1)).isoformat(timespec="seconds"),
    }


async def test_the_rank_that_all_others_wait_for_stands_out(browser, tmp_path):
    with served_cluster(tmp_path) as cluster:
        await asyncio.to_thread(cluster.do, lambda scene: scene.submit(build().worker(4)))
        for index in range(4):
            await asyncio.to_thread(cluster.write, f"demo-worker-{index}", "started")
        event = hung(hang(True, True, False, True))
        await asyncio.to_thread(cluster.do, lambda scene: scene.client.create(EVENTS, "default", event))
        async with cluster_tab(browser, cluster) as found:
            await found.page.goto(f"{found.link}#/jobs/default/demo")
            for index in range(4):
                lane = found.page.locator(".strip > div").nth(index).locator(".lane")
                state = "stalled" if index == 2 else "waiting for others"
                await expect(lane).to_have_attribute("aria-label", re.compile(f"running .*, {state}"))
            await expect(found.page.locator(".legend").last).to_contain_text("waiting for others")
            assert await found.violations() == []


async def test_of_many_ranks_the_odd_one_comes_first_and_any_is_found(browser, tmp_path):
    with served_cluster(tmp_path) as cluster:
        await asyncio.to_thread(cluster.do, lambda scene: scene.submit(build().worker(70)))
        await asyncio.to_thread(cluster.write, "demo-worker-69", "started")
        event = hung(hang(*[True] * 69, False))
        await asyncio.to_thread(cluster.do, lambda scene: scene.client.create(EVENTS, "default", event))
        async with cluster_tab(browser, cluster) as found:
            await found.page.goto(f"{found.link}#/jobs/default/demo")
            lanes = found.page.locator(".strip > div")
            await expect(lanes).to_have_count(64)
            await expect(lanes.first).to_contain_text(re.compile("worker-69.*stalled"))
            await found.page.get_by_role("link", name="6 more").click()
            rows = found.page.locator(".ranks tbody tr:not(.space)")
            await found.page.get_by_label("Filter by rank").fill("worker-68")
            await expect(rows).to_have_count(1)
            await expect(found.page.get_by_role("status").filter(has_text="1 / 70")).to_be_visible()
            assert await found.violations() == []


async def test_a_thousand_jobs_are_a_page_of_few_rows(browser, tmp_path):
    with served_cluster(tmp_path) as cluster:

        async def create(scene) -> None:
            for number in range(1000):
                # Another controller's, so that the operator of the test leaves them alone.
                built = build(f"job-{number:04}").worker(1).spec(managedBy="example.org/other")
                await scene.submit(built)

        await asyncio.to_thread(cluster.do, create)
        async with cluster_tab(browser, cluster) as found:
            await found.page.goto(found.link)
            await expect(found.page.get_by_role("button", name="All 1000")).to_be_visible()
            rows = found.page.locator("a.job")
            await found.page.get_by_role("button", name="Name", exact=True).click()
            await expect(rows.first).to_have_text("job-0000")
            assert await rows.count() < 60
            await found.page.evaluate("scrollTo(0, document.body.scrollHeight)")
            await expect(rows.last).to_have_text("job-0999")
            assert await rows.count() < 60
            await found.page.get_by_label("Filter by name").fill("job-0123")
            await expect(rows).to_have_count(1)
            assert found.errors == []
