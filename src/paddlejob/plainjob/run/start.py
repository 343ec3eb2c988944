"""`paddlejob start`: what every pod of a training Job runs, or all pods on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from paddlejob.kube import errors as kube_errors
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import SERVICE_ACCOUNT, in_cluster_config
from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.rendezvous.address import own_address
from paddlejob.plainjob.rendezvous.loopback import loopback_place
from paddlejob.plainjob.rendezvous.peers import Finished, Peers, PodIdentity
from paddlejob.plainjob.rendezvous.pod_lister import ClusterLister, LoopbackLister, PodLister
from paddlejob.plainjob.rendezvous.rendezvous import Rendezvous, Timing
from paddlejob.plainjob.run.console import Console
from paddlejob.plainjob.run.launch import is_legacy
from paddlejob.plainjob.run.pod import PodRunner, Program
from paddlejob.plainjob.run.signals import Interruptions, signals_to
from paddlejob.plainjob.settings import JobSettings

FINISHED = ".finished.json"
"""In the output directory: the Job whose trainers have all succeeded."""


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to the environment."""

    program: Program
    timing: Timing = Timing()
    work_directory: Path | None = None
    """Kept when given; otherwise a temporary one, removed at the end."""


async def start_in_cluster(
    settings: JobSettings, options: StartOptions, *, service_account: Path = SERVICE_ACCOUNT
) -> int:
    """Run this pod's part of the Job and return its exit code."""
    from paddlejob.kube.transport.http import HttpTransport  # noqa: PLC0415 - aiohttp is slow to import

    console = Console(sys.stdout.buffer, sys.stderr.buffer)
    try:
        transport = HttpTransport(in_cluster_config(options.program.inherited, service_account))
    except kube_errors.ConfigError as error:
        console.say(f"error: {error}; use --local N to train without a cluster")
        return errors.SettingsError.exit_code
    me = PodIdentity(settings.pod_name, own_address(settings), settings.completion_index)
    async with Client(transport) as client:
        participant = Participant(settings, options, ClusterLister(client), me, console)
        with signals_to(participant.interrupt), _directory(options.work_directory) as directory:
            return await participant.run(directory)


async def start_locally(settings: JobSettings, nodes: int, options: StartOptions) -> int:
    """Run all pods of the Job as processes of this machine; return the first failure's code, or 0."""
    if nodes > 1 and is_legacy(options.program.command):
        _prefixed(0).say("error: 'paddle pserver' listens on one network device: use --local 1")
        return errors.SettingsError.exit_code
    with (
        loopback_place(nodes, settings.port, settings.ports + 1) as place,
        _directory(options.work_directory) as directory,
    ):
        here = msgspec.structs.replace(settings, port=place.port)
        lister = LoopbackLister(place.addresses)
        participants = [
            Participant(here, options, lister, PodIdentity(address=address), _prefixed(index))
            for index, address in enumerate(place.addresses)
        ]

        def interrupt_all(number: int) -> None:
            for participant in participants:
                participant.interrupt(number)

        with signals_to(interrupt_all):
            running = [
                participant.run(directory / f"node_{index}") for index, participant in enumerate(participants)
            ]
            return first_failure(await asyncio.gather(*running))


def first_failure(codes: list[int]) -> int:
    """Return the most telling code: that of a pod that failed by itself, not because of another."""
    failed = [code for code in codes if code]
    by_itself = [code for code in failed if code != errors.PeerFailedError.exit_code]
    return (by_itself or failed or [0])[0]


def _prefixed(node: int) -> Console:
    return Console(sys.stdout.buffer, sys.stderr.buffer, prefix=f"[{node}] ")


@contextlib.contextmanager
def _directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="paddlejob-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


class Participant:
    """One pod, from finding the others to its exit code."""

    def __init__(
        self,
        settings: JobSettings,
        options: StartOptions,
        lister: PodLister,
        me: PodIdentity,
        console: Console,
    ) -> None:
        self._settings, self._options, self._console = settings, options, console
        self._rendezvous = Rendezvous(lister, settings, me, options.timing, console.say)
        self._interruptions = Interruptions()

    def interrupt(self, number: int) -> None:
        """Handle a signal."""
        self._interruptions.interrupt(number)

    async def run(self, directory: Path) -> int:
        """Take part in training and return the exit code of this pod."""
        task = asyncio.ensure_future(self._take_part(directory))
        self._interruptions.otherwise_cancel(task)
        try:
            return await task
        except errors.PlainJobError as error:
            self._console.say(f"error: {error}")
            return error.exit_code
        except asyncio.CancelledError:
            if self._interruptions.received is None:
                raise
            return 128 + self._interruptions.received

    async def _take_part(self, directory: Path) -> int:
        async with self._rendezvous.join(self._all_done) as joined:
            if isinstance(joined, Finished):
                return self._after(joined)
            peers, client = joined
            runner = PodRunner(
                self._settings,
                peers,
                client,
                program=self._options.program,
                directory=directory,
                console=self._console,
                interruptions=self._interruptions,
            )
            await runner.run()
        return 0

    def _all_done(self, peers: Peers) -> None:
        """Leave a note for a pod that is started again after training has finished."""
        if peers.job_uid:
            path = self._settings.output_directory / FINISHED
            try:
                manifest.write_whole(path, msgspec.json.encode({"jobUid": peers.job_uid}))
            except OSError as error:
                # Training has succeeded all the same, and the other pods wait to hear of it.
                self._console.say(
                    f"cannot write {path}: {error.strerror}; a pod that is started again will fail"
                )

    def _after(self, finished: Finished) -> int:
        path = self._settings.output_directory / FINISHED
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if msgspec.json.decode(path.read_bytes()) == {"jobUid": finished.job_uid}:
                self._console.say("training has already finished")
                return 0
        raise errors.PeersMissingError(
            f"pod {finished.name} has finished and will not join again: delete the Job and create it again"
        )
