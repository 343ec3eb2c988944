"""`submit` and `validate`: create or check the jobs in files."""

from __future__ import annotations

import asyncio
import sys

import click

from paddlejob.api.meta import JsonObject
from paddlejob.cli import output, shared
from paddlejob.cli.follow import LogPrinter, print_logs, print_states, verdict
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client import manifest as manifests
from paddlejob.client.errors import ClientError, InvalidJobError, WaitTimeoutError
from paddlejob.client.job import Job
from paddlejob.client.logs.model import LogQuery
from paddlejob.client.manifest import Overrides


@click.command("submit", cls=shared.WithArguments, options_metavar="[OPTIONS]")
@shared.files_argument
@click.option("--name", default="", help="Another name for the job.")
@click.option(
    "--generate-name",
    is_flag=True,
    help="Append a random suffix to the name, so that FILE can be submitted again.",
)
@click.option("--workers", type=click.IntRange(min=1), default=None, help="Number of workers.")
@click.option("--ps", type=click.IntRange(min=0), default=None, help="Number of parameter servers.")
@click.option("--image", default="", help="Image of the training containers.")
@click.option("--env", "-e", multiple=True, metavar="NAME=VALUE", help="Environment variable of all ranks.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    help="Only check: here, or by the API server.",
)
@click.option(
    "--validate/--no-validate",
    default=True,
    help="Check the fields before anything is sent; the default. The API server checks in any case.",
)
@click.option("--watch", "-w", is_flag=True, help="Watch the job until it ends; exit with its result.")
@click.option("--logs", is_flag=True, help="Follow the logs until the job ends; exit with its result.")
@click.option("--rank", "-r", default="all", metavar="RANK", help="With --logs: only this rank (0, ps-1).")
@click.option("--timeout", type=shared.Duration(), default=None, help="Maximum time to follow, e.g. 8h.")
@output.output_option("json", "yaml", "name")
@target_flags
@click.pass_context
def command(
    ctx: click.Context,
    target: Target,
    files: tuple[str, ...],
    more: tuple[str, ...],
    name: str,
    generate_name: bool,
    workers: int | None,
    ps: int | None,
    image: str,
    env: tuple[str, ...],
    dry_run: str,
    validate: bool,
    watch: bool,
    logs: bool,
    rank: str,
    timeout: float | None,
    form: str | None,
) -> None:
    """Submit the jobs in each FILE. Options change the jobs; arguments after -- replace `args`.

    submit job.yaml --workers 4 -e LR=0.1 --logs -- --epochs 10
    """
    sources = shared.required_files(files, more)
    overrides = Overrides(
        name=name,
        generate_name=generate_name,
        workers=workers,
        ps=ps,
        image=image,
        env=dict(_assignment(each) for each in env),
        args=shared.arguments_after_dashes(ctx),
    )
    submission = _Submission(
        overrides, dry_run, form, validate=validate, watch=watch, logs=logs, rank=rank, seconds=timeout
    )
    shared.run(submission.run(target, sources))


class _Submission:
    def __init__(
        self,
        overrides: Overrides,
        dry_run: str,
        form: str | None,
        *,
        validate: bool,
        watch: bool,
        logs: bool,
        rank: str,
        seconds: float | None,
    ) -> None:
        self._overrides = overrides
        self._dry_run = dry_run
        self._form = form
        self._validate = validate
        self._watch = watch
        self._logs = logs
        self._rank = rank
        self._seconds = seconds

    async def run(self, target: Target, sources: tuple[str, ...]) -> int:
        read = [manifests.read(shared.read_text(source), shared.source_name(source)) for source in sources]
        changed = [manifests.override(job, self._overrides) for jobs, _ in read for job in jobs]
        beside = [each for _, others in read for each in others]
        self._check(changed)
        if self._dry_run == "client":
            self._print_checked(changed)
            return 0
        async with target.open() as jobs:
            is_dry = self._dry_run == "server"
            for note in await jobs.submit_beside(beside, dry_run=is_dry):
                say(note, err=True)
            submitted: list[Job] = []
            try:
                for each in changed:
                    submitted += [await jobs.submit(each, dry_run=is_dry)]
            finally:
                # Jobs before one that was refused have been created.
                self._print(submitted, target)
            if is_dry or not (self._watch or self._logs):
                return 0
            return await self._follow(target, submitted[0])

    def _check(self, changed: list[JsonObject]) -> None:
        if len(changed) > 1 and (self._overrides.name or self._watch or self._logs):
            raise click.UsageError(
                f"--name, --watch and --logs are for one job, and there are {len(changed)}"
            )
        if self._validate:
            manifests.check(*changed)

    def _print_checked(self, changed: list[JsonObject]) -> None:
        for each in changed:
            if self._form in ("json", "yaml"):
                output.print_object(each, self._form)
            else:
                say(f"paddlejob.batch.paddlepaddle.org/{manifests.name_of(each)} created (dry run)")

    def _print(self, submitted: list[Job], target: Target) -> None:
        if self._form:
            output.print_jobs(submitted, self._form, as_list=False)
            return
        suffix = " (server dry run)" if self._dry_run == "server" else ""
        for job in submitted:
            say(f"{job.kind_and_name} created{suffix}")
        if submitted and not suffix and not (self._watch or self._logs) and sys.stderr.isatty():
            say(f"follow it with `{target.command(f'logs -f {submitted[0].name}')}`", err=True)

    async def _follow(self, target: Target, job: Job) -> int:

        try:
            async with asyncio.timeout(self._seconds):
                await (self._follow_logs(job) if self._logs else print_states(job))
        except TimeoutError:
            raise WaitTimeoutError(
                f"{job.name} has not ended after {self._seconds:g}s; it keeps running"
            ) from None
        except asyncio.CancelledError:
            hint = target.command(f"logs -f {job.name}")
            say(f"{job.name} keeps running; follow it with `{hint}`", err=True)
            raise
        return await verdict(job, with_lines=not self._logs)

    async def _follow_logs(self, job: Job) -> None:
        query = LogQuery(rank=self._rank, follow=True)
        await print_logs(job, query, LogPrinter(self._rank, timestamps=False))


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--server", is_flag=True, help="Also validate on the API server.")
@target_flags
def validate(target: Target, files: tuple[str, ...], server: bool) -> None:
    """Check the jobs in each FILE; nothing is created. Exit code 2 if one of them is invalid."""
    shared.run(_validate(target, files, server=server))


async def _validate(target: Target, files: tuple[str, ...], *, server: bool) -> int:
    code = 0
    for file in files:
        try:
            await _validate_file(target, file, server=server)
        except ClientError as error:
            shared.say_error(*str(error).splitlines())
            code = shared.BAD_INPUT
    return code


async def _validate_file(target: Target, file: str, *, server: bool) -> None:
    source = shared.source_name(file)
    found, _ = manifests.read(shared.read_text(file), source)
    try:
        manifests.check(*found)
        if server:
            async with target.open() as jobs:
                for each in found:
                    await jobs.submit(each, dry_run=True)
    except InvalidJobError as error:
        raise InvalidJobError(*(f"{source}: {problem}" for problem in error.problems)) from None
    for each in found:
        say(f"{source}: PaddleJob {manifests.name_of(each)} is valid")


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"-e {text}: write NAME=VALUE")
    return name, value
