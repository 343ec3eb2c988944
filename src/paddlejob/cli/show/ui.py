"""`ui`: the dashboard in a browser."""

from __future__ import annotations

import contextlib
import html
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags


@click.command("ui")
@shared.all_namespaces_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; 0 picks a free one."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Also answer under this name, for a proxy in front.",
)
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@target_flags
def command(
    target: Target, all_namespaces: bool, port: int, hosts: tuple[str, ...], no_browser: bool
) -> None:
    """Show and change jobs in a browser: progress, logs and curves, live.

    The page is served only to you, on 127.0.0.1 and with your own permissions, until you press Ctrl+C.
    """
    shared.run(_serve(target, all_namespaces, port, hosts, browser=not no_browser and sys.stdout.isatty()))


async def _serve(
    target: Target, all_namespaces: bool, port: int, hosts: tuple[str, ...], *, browser: bool
) -> int:
    from paddlejob.dashboard.server import Dashboard  # noqa: PLC0415 - imports aiohttp

    async with target.open() as jobs, Dashboard(jobs, all_namespaces=all_namespaces) as dashboard:
        url = await dashboard.serve(port, hosts)
        click.echo(f"Dashboard: {url}\nThe link works once. Press Ctrl+C to stop.")
        with _page_to(url) if browser else contextlib.nullcontext("") as page:
            if page:
                click.launch(page)
            await dashboard.until_stopped()
    return 0


@contextlib.contextmanager
def _page_to(url: str) -> Iterator[str]:
    """Write a private page that redirects to the link, since all users can see the arguments of programs."""
    with tempfile.TemporaryDirectory(prefix="paddlejob-") as directory:
        page = Path(directory) / "dashboard.html"
        page.write_text(f'<meta http-equiv="refresh" content="0;url={html.escape(url)}">')
        yield page.as_uri()
