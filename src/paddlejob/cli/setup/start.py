"""`paddlejob start`: one pod of a plain Kubernetes Job, or all of them on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from pathlib import Path

import click

from paddlejob.plainjob import errors
from paddlejob.plainjob.rendezvous.rendezvous import Timing
from paddlejob.plainjob.run.launch import DEFAULT_PROGRAM, is_legacy, separate_arguments
from paddlejob.plainjob.run.pod import Program
from paddlejob.plainjob.run.start import StartOptions, start_in_cluster, start_locally
from paddlejob.plainjob.settings import MINIMUM_PORTS, JobSettings, read_settings

_PASSED = "paddlejob.passed"


class StartCommand(click.Command):
    """Parses its own options and passes all other arguments to the trainer, in order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse our own options only."""
        own = {
            name: not parameter.is_flag
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option)
            for name in parameter.opts
        }
        ours, others = separate_arguments(args, own)
        ctx.meta[_PASSED] = tuple(others)
        return super().parse_args(ctx, ours)


@click.command(cls=StartCommand, options_metavar="[OPTIONS] [--] [TRAINER ARGUMENTS]")
@click.option(
    "--local",
    metavar="N",
    type=click.IntRange(1, 250),
    help="Run N pods as processes on this machine, without a cluster.",
)
@click.option(
    "--program",
    default=DEFAULT_PROGRAM,
    show_default=True,
    help="Command to run as server and as trainer; 'paddle train' runs the binary of PaddlePaddle 0.x.",
)
@click.option(
    "--deadline",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    envvar="START_DEADLINE",
    show_envvar=True,
    help="How long to wait for the other pods.",
)
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory to copy scripts and shard to, and to train in; default: a temporary directory.",
)
@click.pass_context
def start(ctx: click.Context, local: int | None, program: str, deadline: float, workdir: Path | None) -> None:
    """Train as one pod of a Kubernetes Job in which every pod is a parameter server and a trainer.

    \b
    Reads these variables (* must be set):
      JOB_NAME*                     the Job, and the directory of its data
      JOB_PATH*                     where the shared storage is mounted
      TRAIN_CONFIG_DIR*             the training scripts, inside JOB_PATH/JOB_NAME
      JOB_NAMESPACE                 [default]
      CONF_PADDLE_NIC               network device [eth0]
      CONF_PADDLE_PORT              first port of the window [7164]
      CONF_PADDLE_PORTS_NUM         ports for dense parameters [2]
      CONF_PADDLE_PORTS_NUM_SPARSE  ports for sparse parameters [2]
      CONF_PADDLE_GRADIENT_NUM      number of trainers [the Job's parallelism]
      TRAINER_COUNT                 threads of a trainer

    All other arguments, and everything after `--`, are passed to the trainer.
    """  # noqa: D301 - click wants the backspace itself, not a backslash
    inherited = dict(os.environ)
    options = StartOptions(
        program=Program(command=anchored(program, Path.cwd()), passed=ctx.meta[_PASSED], inherited=inherited),
        timing=Timing(deadline_seconds=deadline),
        work_directory=workdir,
    )
    try:
        minimum_ports = 1 if is_legacy(program) else MINIMUM_PORTS
        settings = read_settings(inherited, socket.gethostname, minimum_ports)
    except errors.SettingsError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(asyncio.run(_start(settings, local, options)))


async def _start(settings: JobSettings, local: int | None, options: StartOptions) -> int:
    if local is None:
        return await start_in_cluster(settings, options)
    return await start_locally(settings, local, options)


def anchored(program: str, here: Path) -> str:
    """Return the program with an absolute path, since training runs in another directory."""
    words = shlex.split(program)
    if words and "/" in words[0]:
        words[0] = str(here / words[0])
    return shlex.join(words)


command = start
