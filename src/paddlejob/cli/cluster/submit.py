"""`submit` and `validate`: jobs from files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from paddlejob.cli.cluster import output, shared
from paddlejob.cli.cluster.flags import Target, target_flags
from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from paddlejob.api.meta import JsonObject
    from paddlejob.client.job import Job
    from paddlejob.client.manifest import Overrides

_ARGUMENTS = "paddlejob.arguments"


def arguments_after_dashes(ctx: click.Context) -> tuple[str, ...]:
    """Return what comes after `--` on the command line."""
    found: tuple[str, ...] = ctx.meta.get(_ARGUMENTS, ())
    return found


class WithArguments(click.Command):
    """A command whose arguments after `--` are not its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put aside what comes after `--`."""
        if "--" in args:
            position = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[position + 1 :])
            args = args[:position]
        return super().parse_args(ctx, args)


@click.command("submit", cls=WithArguments, options_metavar="[OPTIONS]")
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "--filename", "-f", "more", multiple=True, metavar="FILE", help="The same as FILE; - reads stdin."
)
@click.option("--name", default="", help="Another name for the job.")
@click.option("--generate-name", is_flag=True, help="Complete the name, so that FILE can be submitted again.")
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
@click.option("--timeout", type=shared.Duration(), default=None, help="Longest time to follow, e.g. 8h.")
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
    """Submit the jobs in each FILE, changed by the options; what comes after -- replaces the arguments.

    submit job.yaml --workers 4 -e LR=0.1 --logs -- --epochs 10
    """
    sources = (*files, *more)
    if not sources:
        raise click.UsageError("give a FILE, or - to read standard input")
    from paddlejob.client.manifest import Overrides  # noqa: PLC0415

    overrides = Overrides(
        name=name,
        generate_name=generate_name,
        workers=workers,
        ps=ps,
        image=image,
        env=dict(_assignment(each) for each in env),
        args=arguments_after_dashes(ctx),
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
        from paddlejob.client import manifest as manifests  # noqa: PLC0415

        read = [manifests.read(_text(source), _source_name(source)) for source in sources]
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
                # Those that were created before one was refused are there.
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
            from paddlejob.client import manifest as manifests  # noqa: PLC0415 - schemas take long to import

            manifests.check(*changed)

    def _print_checked(self, changed: list[JsonObject]) -> None:
        from paddlejob.client.manifest import name_of  # noqa: PLC0415

        for each in changed:
            if self._form in ("json", "yaml"):
                output.print_object(each, self._form)
            else:
                say(f"paddlejob.batch.paddlepaddle.org/{name_of(each)} created (dry run)")

    def _print(self, submitted: list[Job], target: Target) -> None:
        if self._form:
            output.print_jobs(submitted, self._form, as_list=False)
            return
        suffix = " (server dry run)" if self._dry_run == "server" else ""
        for job in submitted:
            say(f"{job.kind_and_name} created{suffix}")
        if submitted and not suffix and not (self._watch or self._logs) and sys.stderr.isatty():
            say(f"follow it with `{target.command} logs -f {submitted[0].name}`", err=True)

    async def _follow(self, target: Target, job: Job) -> int:
        import asyncio  # noqa: PLC0415

        from paddlejob.cli.cluster.following import print_states, verdict  # noqa: PLC0415
        from paddlejob.client.errors import WaitTimeoutError  # noqa: PLC0415

        try:
            async with asyncio.timeout(self._seconds):
                await (self._follow_logs(job) if self._logs else print_states(job))
        except TimeoutError:
            raise WaitTimeoutError(
                f"{job.name} has not ended after {self._seconds:g}s; it keeps running"
            ) from None
        except asyncio.CancelledError:
            say(f"{job.name} keeps running; follow it with `{target.command} logs -f {job.name}`", err=True)
            raise
        return await verdict(job, with_lines=not self._logs)

    async def _follow_logs(self, job: Job) -> None:
        from paddlejob.cli.cluster.following import LogPrinter, print_logs  # noqa: PLC0415
        from paddlejob.client.logs.model import LogQuery  # noqa: PLC0415

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
    from paddlejob.client.errors import ClientError  # noqa: PLC0415

    code = 0
    for file in files:
        try:
            await _validate_file(target, file, server=server)
        except ClientError as error:
            shared.say_error(*str(error).splitlines())
            code = shared.BAD_INPUT
    return code


async def _validate_file(target: Target, file: str, *, server: bool) -> None:
    from paddlejob.client import manifest as manifests  # noqa: PLC0415
    from paddlejob.client.errors import InvalidJobError  # noqa: PLC0415

    source = _source_name(file)
    found, _ = manifests.read(_text(file), source)
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


def _text(source: str) -> str:
    from paddlejob.client.errors import ClientError  # noqa: PLC0415

    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise ClientError(f"unable to read {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ClientError(f"{source} is not UTF-8 text; save it as UTF-8") from error


def _source_name(source: str) -> str:
    return "standard input" if source == "-" else source
