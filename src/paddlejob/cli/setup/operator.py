"""`operator`: run the operator.

Command lines of Deployments written for paddle-operator work too. Go parses `-name` like `--name`, and a
switch as `--name` or `--name=false`. Flags of paddle-operator that have no effect here are accepted and
reported in the log: replacing the image must not require editing arguments.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from paddlejob.api import names
from paddlejob.core.gang.model import Scheduling
from paddlejob.core.snapshot import Settings
from paddlejob.kube.errors import ConfigError
from paddlejob.kube.lease import LeaseLostError
from paddlejob.kube.transport.config import load_config
from paddlejob.operator.settings import HistorySettings, OperatorSettings, ProcessSettings, ReportSettings
from paddlejob.training.hangs import HangLimits

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")
_ZAP_LEVELS = {"warn": "warning", "dpanic": "error", "panic": "error", "fatal": "error"}
_IGNORED = f"{__name__}.ignored"
DEFAULT_PORT_RANGE = f"{names.HOST_PORT_RANGE[0]},{names.HOST_PORT_RANGE[1]}"


class GoSwitch(click.Option):
    """An option that is true when given without a value."""


def truth(text: object) -> bool:
    """Parse a boolean in every spelling that Go accepts."""
    word = str(text).lower()
    if word not in (*_TRUE, *_FALSE):
        raise click.BadParameter(f"{text!r} is not a boolean; use true or false")
    return word in _TRUE


class LogLevel(click.Choice[str]):
    """A log level with the name of Python or zap; a number is a verbosity of zap."""

    def __init__(self) -> None:
        super().__init__(("debug", "info", "warning", "error"), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert either name to ours."""
        word = str(value).lower()
        known = _ZAP_LEVELS.get(word, "debug" if word.isdecimal() and int(word) else value)
        return super().convert(known, param, ctx)


class LogFormat(click.Choice[str]):
    """A log format by our name or by zap's."""

    def __init__(self) -> None:
        super().__init__(("text", "json"), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert either name to ours."""
        return super().convert("text" if str(value).lower() == "console" else value, param, ctx)


class GoCommand(click.Command):
    """A command that accepts options in the style of Go programs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after rewriting them in the usual style."""
        return super().parse_args(ctx, list(_usual(args, self.params)))


def _usual(args: Sequence[str], params: Sequence[click.Parameter]) -> Iterator[str]:
    """Yield the arguments with two dashes before every long name, and with a value after every switch."""
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    rest = iter(args)
    for argument in rest:
        name, equals, value = argument.partition("=")
        option = options.get(f"-{name}" if name.startswith("-") and not name.startswith("--") else name)
        if argument == "--" or option is None:
            yield argument
            if argument == "--":
                break
        elif isinstance(option, GoSwitch):
            yield f"{option.opts[0]}={value if equals else 'true'}"
        elif equals:
            yield f"{option.opts[0]}={value}"
        else:
            # The next argument is the value, whatever it looks like.
            yield option.opts[0]
            yield from (value for value in (next(rest, None),) if value is not None)
    yield from rest


def ignored_option(
    flag: str, why: str, kind: type[click.Option] = click.Option
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a flag of the earlier operator that has no effect; `report_ignored` logs the reason."""

    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        del param
        if value is not None:
            ctx.meta.setdefault(_IGNORED, []).append(f"{flag} is ignored: {why}")

    return click.option(flag, cls=kind, callback=remember, expose_value=False, hidden=True)


def report_ignored(ctx: click.Context, log: logging.Logger) -> None:
    """Log a warning for every flag that has no effect."""
    for sentence in ctx.meta.get(_IGNORED, ()):
        log.warning(sentence)


# The help options are repeated here because click caches them per command.
@click.command("operator", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--namespace", default="", help="Namespace to watch. Default: all namespaces.")
@click.option(
    "--leader-elect",
    cls=GoSwitch,
    type=truth,
    default=False,
    metavar="[true|false]",
    help="Elect a leader, so that only one of several replicas is active.",
)
@click.option(
    "--lease-namespace",
    default="",
    help="Namespace of the Lease for leader election. Default: the operator's own.",
)
@click.option(
    "--metrics-bind-address",
    default=":8080",
    show_default=True,
    help="Address to serve /metrics on; 0 disables it.",
)
@click.option(
    "--health-probe-bind-address",
    default=":8081",
    show_default=True,
    help="Address to serve /healthz and /readyz on; 0 disables it.",
)
@click.option(
    "--base-port",
    type=click.IntRange(1024, 65536 - names.PORTS_PER_POD),
    default=names.BASE_PORT,
    show_default=True,
    help=f"First of the {names.PORTS_PER_POD} ports of a pod and its Service; change it while no job runs.",
)
@click.option(
    "--port-range",
    default=DEFAULT_PORT_RANGE,
    show_default=True,
    help="First and last port for jobs with intranet Host.",
)
@click.option(
    "--scheduling",
    default="",
    type=click.Choice([str(choice) for choice in Scheduling]),
    help="Gang scheduler for jobs that do not choose one: volcano, native (PodGroups of Kubernetes) or auto "
    "(whichever the cluster has). Default: no gang scheduling for them.",
)
@click.option(
    "--etcd-server", default="", help="host:port of the etcd for Paddle's elastic launcher. Default: none."
)
@click.option(
    "--progress-from-logs",
    cls=GoSwitch,
    type=truth,
    default=True,
    metavar="[true|false]",
    help="Read step, loss and ETA of jobs from the log of worker 0; needs get on pods/log. Default: true.",
)
@click.option(
    "--history",
    cls=GoSwitch,
    type=truth,
    default=True,
    metavar="[true|false]",
    help="Keep a record of each job in a ConfigMap that outlives it; needs delete on configmaps. "
    "Default: true.",
)
@click.option(
    "--history-days",
    type=click.IntRange(1, 3650),
    default=HistorySettings().days,
    show_default=True,
    help="Days to keep the record of a job that has ended.",
)
@click.option(
    "--history-per-namespace",
    type=click.IntRange(1, 10000),
    default=HistorySettings().per_namespace,
    show_default=True,
    help="Number of records to keep in a namespace; the oldest are deleted first.",
)
@click.option(
    "--reports-url",
    default="",
    metavar="URL",
    help="URL under which pods reach the reports port; without it, pods get no recorder.",
)
@click.option(
    "--reports-bind-address",
    default=":8443",
    show_default=True,
    help="Address to receive reports from pods on, over TLS, while this operator is the leader.",
)
@click.option(
    "--recorder",
    default="off",
    show_default=True,
    type=click.Choice(["off", "on"]),
    help="Default of spec.recorder: whether workers report step and loss from inside their Python; "
    "needs --reports-url.",
)
@click.option(
    "--hang-seconds",
    default="600,7200",
    show_default=True,
    metavar="MIN,MAX",
    help="Bounds of the timeout after which a job with the recorder counts as hung; the timeout is learned "
    "from the job's own steps, and at least 6 times the lower bound for evaluations and checkpoints.",
)
@click.option(
    "--straggler-seconds",
    default=300.0,
    show_default=True,
    type=click.FloatRange(min=10),
    help="How long a rank slows the others down before it is replaced, in jobs with stragglerPolicy Replace.",
)
@click.option("--workers", default=40, show_default=True, help="Number of jobs to reconcile concurrently.")
@click.option(
    "--kubeconfig",
    default="",
    help="Path of a kubeconfig. Default: $KUBECONFIG, the pod's service account, ~/.kube/config.",
)
@click.option("--context", default=None, help="Context of the kubeconfig. Default: its current context.")
@click.option(
    "--log-level",
    "--zap-log-level",
    "log_level",
    default="info",
    type=LogLevel(),
)
@click.option(
    "--log-format",
    "--zap-encoder",
    "log_format",
    default="text",
    type=LogFormat(),
)
@ignored_option("--zap-devel", "use --log-level and --log-format instead", GoSwitch)
@ignored_option("--zap-stacktrace-level", "unexpected errors are always logged with a stack trace")
@ignored_option("--zap-time-encoding", "times are always in ISO 8601")
@ignored_option("--initImage", "pods have no init container; they wait for the job's ConfigMap instead")
def command(
    namespace: str,
    leader_elect: bool,
    lease_namespace: str,
    metrics_bind_address: str,
    health_probe_bind_address: str,
    base_port: int,
    port_range: str,
    etcd_server: str,
    scheduling: str,
    progress_from_logs: bool,
    history: bool,
    history_days: int,
    history_per_namespace: int,
    reports_url: str,
    reports_bind_address: str,
    recorder: str,
    hang_seconds: str,
    straggler_seconds: float,
    workers: int,
    kubeconfig: str,
    context: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the operator that makes PaddleJobs work on a cluster."""
    from paddlejob.operator import manager  # noqa: PLC0415 - aiohttp is slow to import
    from paddlejob.operator.ports.server import new_event_loop  # noqa: PLC0415

    _set_up_logging(log_level, log_format)
    report_ignored(click.get_current_context(), logging.getLogger(__name__))
    try:
        config = load_config(Path(kubeconfig) if kubeconfig else None, context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    jobs = Settings(
        base_port=base_port,
        host_port_range=_read_port_range(port_range),
        etcd_server=etcd_server,
        pods_have_ipv6=":" in os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        scheduling=Scheduling(scheduling),
    )
    settings = OperatorSettings(
        namespace=namespace,
        workers=workers,
        progress_from_logs=progress_from_logs,
        history=HistorySettings(history_days, history_per_namespace) if history else None,
        reports=ReportSettings(
            _read_url(reports_url),
            reports_bind_address,
            recorder == "on",
            _read_hang_limits(hang_seconds),
            straggler_seconds,
        ),
        jobs=jobs,
    )
    process = ProcessSettings(
        metrics_address=metrics_bind_address,
        health_address=health_probe_bind_address,
        leader_election=leader_elect,
        lease_namespace=lease_namespace,
    )
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(manager.run(config, settings, process))
    except LeaseLostError as error:
        raise click.ClickException(f"{error}; exiting, to be restarted as a standby") from None


def _read_port_range(text: str) -> tuple[int, int]:
    first, _, last = text.replace("-", ",").partition(",")
    if first.isdecimal() and last.isdecimal():
        low, high = int(first), int(last)
        if low >= 1024 and high <= 65535 and high - low + 1 >= names.PORTS_PER_POD:
            return low, high
    raise click.BadParameter(
        f"{text!r}: must be FIRST,LAST between 1024 and 65535, with at least {names.PORTS_PER_POD} ports",
        param_hint="--port-range",
    )


def _read_hang_limits(text: str) -> HangLimits:
    least, _, most = text.partition(",")
    if least.isdecimal() and most.isdecimal() and 10 <= int(least) <= int(most):
        return HangLimits(float(least), float(most))
    raise click.BadParameter(
        f"{text!r}: must be MIN,MAX in seconds, at least 10", param_hint="--hang-seconds"
    )


def _read_url(text: str) -> str:
    url = urlsplit(text)
    if text and (url.scheme != "https" or not url.hostname):
        raise click.BadParameter(
            f"{text!r}: must be like https://paddle-controller-manager-reports.paddle-system.svc:8443",
            param_hint="--reports-url",
        )
    return text


def _set_up_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if form == "json" else plain)
    logging.basicConfig(level=level.upper(), handlers=[handler])


class _JsonFormatter(logging.Formatter):
    """One JSON object a line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat()
        entry = {
            "time": moment,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()
