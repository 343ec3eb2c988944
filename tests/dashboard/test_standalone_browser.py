"""Pages that hold their own data, in a real browser: a post-mortem from a file, a job in a notebook cell."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from playwright.async_api import expect

from paddlejob.dashboard.standalone import record_page
from paddlejob.history.record import Record
from paddlejob.sdk.snapshot import render
from tests.dashboard.browser import AXE, AXE_RULES, chromium, tab
from tests.dashboard.records import HOSTILE, failed_record, rank, record_with, snapshot

pytestmark = pytest.mark.browser

IS_DRAWN = """(canvas) => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return data.some((value) => value > 0);
}"""
DARK, LIGHT = ("#111111", "#e6e6e6"), ("#ffffff", "#111111")


@pytest.fixture
async def browser():
    async with chromium() as found:
        yield found


def written(folder: Path, record: Record) -> str:
    path = folder / "page.html"
    path.write_text(record_page(record))
    return path.as_uri()


async def test_a_post_mortem_opens_from_a_file(browser, tmp_path):
    link = written(tmp_path, failed_record())
    async with tab(browser, link) as opened:
        page = opened.page
        await page.goto(link)
        await expect(page.get_by_role("heading", name="resnet")).to_be_visible()
        await expect(page.locator(".why")).to_contain_text("worker-1 exited with code 1: ValueError: no data")
        assert await page.locator(".chart canvas").evaluate(IS_DRAWN)
        await expect(page.get_by_role("img", name="Loss")).to_be_visible()
        for fact in ("2026-01-01 00:41:00 UTC", "41m", "training 60s (100% training)", "uid-1", "PodFailed"):
            await expect(page.locator(".facts")).to_contain_text(fact)
        await expect(page.locator("details[open] pre")).to_have_text("Traceback\nValueError: no data")
        ranks = page.locator("details summary")
        await expect(ranks.nth(0)).to_have_text("worker-1 failed · exit code 1 · node-7")
        await expect(ranks.nth(1)).to_have_text("worker-0 running · node-1")
        first = "First failure: demo-worker-1 · 2026-01-01 00:00:00 UTC"
        ledger = "Recovery: InPlace, 1.80s to the next new step: detect 0.02s, import 1.20s"
        for text in (first, ledger, "and 3 more ranks", "node-3 is gone"):
            await expect(page.get_by_text(text)).to_be_visible()
        await expect(page.get_by_role("row", name="worker image")).to_contain_text("paddle:2")
        await expect(page.locator("table.phases tr")).to_have_count(2)
        assert await opened.violations() == []
        assert await opened.overflow() <= 0
        assert (opened.errors, opened.requests) == ([], [link])


async def test_a_post_mortem_without_javascript_is_text(browser, tmp_path):
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(written(tmp_path, failed_record()))
    await expect(page.locator("pre")).to_contain_text("ValueError: no data")
    await context.close()


@pytest.mark.parametrize("text", HOSTILE)
async def test_no_text_of_a_record_runs(browser, tmp_path, text):
    link = written(tmp_path, record_with(text))
    async with tab(browser, link) as opened:
        await opened.page.goto(link)
        await expect(opened.page.locator("h1")).to_be_visible()
        assert await opened.page.title() != "ran"
        assert (opened.errors, opened.requests) == ([], [link])


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("doctype", ["<!doctype html>", ""], ids=["standard", "quirks"])
async def test_a_job_in_a_notebook_is_complete_and_readable(browser, tmp_path, colours, doctype):
    shown = snapshot(
        lines=[f"epoch 1/2 step {step}/10 loss {1 / step} ips: 120.5 samples/s" for step in range(1, 11)],
        ranks=[rank("worker-0"), rank("worker-1", restarts=2)],
        phase="Running",
        message="".join(HOSTILE),
    )
    background, colour = colours
    link = (tmp_path / "notebook.html").as_uri()
    (tmp_path / "notebook.html").write_text(
        f"{doctype}<html lang=en><meta charset=utf-8><title>quiet</title>"
        f'<body style="background:{background};color:{colour}">{render(shown)}</body></html>'
    )
    async with tab(browser, link) as opened:
        await opened.page.goto(link)
        frame = opened.page.frame_locator("iframe")
        await expect(frame.locator(".title")).to_have_text("demoRunninglaptop")
        await expect(frame.locator(".facts .progress")).to_contain_text(
            "50%epoch 1/2 · step 10/20 · Loss 0.1 · 120.5 samples/s"
        )
        lanes = ["worker-0Running", "worker-1Running · 2 restarts"]
        await expect(frame.locator(".strip > div")).to_have_text(lanes)
        assert await frame.locator(".chart canvas").first.evaluate(IS_DRAWN)
        theme = "light" if colours == LIGHT else "dark"
        await expect(frame.locator("html")).to_have_attribute("data-theme", theme)
        inner = opened.page.frames[1]
        assert await inner.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0
        await inner.evaluate(AXE)
        found = await inner.evaluate(f"axe.run(document, {AXE_RULES})")
        assert [each["id"] for each in found["violations"]] == []
        assert await opened.page.title() == "quiet"
        assert opened.errors == []


async def test_a_notebook_that_removes_frames_shows_a_line():
    shown = render(snapshot(phase="Running", lines=["step 1/2 loss 1"], message="<b>"))
    assert html.unescape(shown.rpartition("</iframe>")[0].rpartition(">")[2]) == (
        "demo on laptop: Running: <b>, step 1/2 loss 1"
    )
