"""`dashboard`: serve the dashboard inside a cluster to many users."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import click

from paddlejob.cli import shared
from paddlejob.kube.errors import ConfigError
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.config import in_cluster_config, load_config

_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("dashboard")
@click.option("--bind-address", default=":8080", show_default=True, help="Address to serve the pages on.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Host name under which browsers may open the dashboard; localhost always works.",
)
@click.option(
    "--path-prefix",
    default="",
    help="Path prefix of all pages, if a proxy does not strip it, e.g. /paddlejob.",
)
@click.option("--tls-cert-file", type=_File, help="Certificate to serve HTTPS with; reloaded when renewed.")
@click.option("--tls-private-key-file", type=_File, help="Its private key.")
@click.option(
    "--kubeconfig", type=_File, help="Cluster to show. Its credentials are not used. Default: the pod's own."
)
def command(
    bind_address: str,
    hosts: tuple[str, ...],
    path_prefix: str,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    kubeconfig: Path | None,
) -> None:
    """Serve the dashboard to many users, each with the rights of their own token.

    The Helm chart runs this with dashboard.enabled=true. For yourself, use `kubectl pdj ui`.
    """
    if (tls_cert_file is None) != (tls_private_key_file is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file belong together")
    prefix = f"/{path_prefix.strip('/')}" if path_prefix.strip("/") else ""
    files = (tls_cert_file, tls_private_key_file) if tls_cert_file and tls_private_key_file else None
    shared.run(_serve(_config(kubeconfig), bind_address, hosts, prefix, files))


def _config(kubeconfig: Path | None) -> ClusterConfig:
    try:
        return load_config(kubeconfig) if kubeconfig else in_cluster_config(os.environ, with_token=False)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


async def _serve(
    config: ClusterConfig,
    address: str,
    hosts: tuple[str, ...],
    prefix: str,
    files: tuple[Path, Path] | None,
) -> int:
    from paddlejob.dashboard.shared import Certificate, SharedDashboard  # noqa: PLC0415 - imports aiohttp

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with SharedDashboard(config, hosts=hosts, prefix=prefix) as dashboard:
        port = await dashboard.serve(address, Certificate(*files) if files else None)
        click.echo(f"Serving the dashboard on port {port} over {'HTTPS' if files else 'HTTP'}.")
        await stop.wait()
    return 0
