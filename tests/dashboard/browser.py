"""Debian's Chromium, driven by Playwright: a page that notes what it must never do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

AXE_RULES = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}"
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
IMAGES = Path(__file__).parents[2] / "docs" / "images"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MILLISECONDS = 30_000
expect.set_options(timeout=PATIENCE_MILLISECONDS)


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start a browser. Fails where there is none."""
    path = shutil.which("chromium")
    assert path, "Chromium is missing: `make test-browser` installs it"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


class Tab:
    """A page, and whatever went wrong in it."""

    def __init__(self, page: Page, link: str) -> None:
        self.page = page
        self.link = link
        self.base = link.partition("?")[0]
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda told: told.type == "error" and self.errors.append(told.text))
        page.on("request", lambda request: self.requests.append(request.url))

    async def open(self, hash_: str = "") -> None:
        """Go to a page of the dashboard."""
        await self.page.goto(f"{self.base}#/{hash_}")

    @property
    def foreign(self) -> list[str]:
        """Requests to anybody but the dashboard."""
        return [url for url in self.requests if not url.startswith(self.base)]

    async def violations(self) -> list[str]:
        """Return what axe-core finds wrong for people who see, hear or move otherwise."""
        # It does not always come to an end on a page that is drawn again meanwhile: then from the beginning.
        for _ in range(4):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(20):
                    await self.page.evaluate(AXE)
                    found = await self.page.evaluate(f"axe.run(document, {AXE_RULES})")
                    break
        else:
            pytest.fail("axe-core does not come to an end")
        return [
            f"{each['id']}: {node['html']}: {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    async def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return await self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    async def picture(self, name: str) -> None:
        """Keep a picture for the documentation, when one is asked for."""
        if os.environ.get("PADDLEJOB_SCREENSHOTS"):
            IMAGES.mkdir(exist_ok=True)
            await self.page.screenshot(path=IMAGES / f"dashboard-{name}.png")


@contextlib.asynccontextmanager
async def tab(browser: Browser, link: str, *, width: int = 1280, **options: str) -> AsyncIterator[Tab]:
    """Open the link in a browser of its own."""
    context = await browser.new_context(
        viewport={"width": width, "height": 800}, **{"locale": "en-GB", "reduced_motion": "reduce", **options}
    )
    found = Tab(await context.new_page(), link)
    try:
        yield found
    finally:
        await context.close()
