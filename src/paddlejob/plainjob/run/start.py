"""`paddlejob start`: run one pod of a training Job, or all its pods on one machine."""

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
from paddlejob.kube.transport.config import in_cluster_config
from paddlejob.plainjob import errors
from paddlejob.plainjob.data import manifest
from paddlejob.plainjob.rendezvous.address import own_address, reserve_loopback
from paddlejob.plainjob.rendezvous.peers import Finished, Peers, PodIdentity
from paddlejob.plainjob.rendezvous.pod_lister import ClusterLister, LoopbackLister, PodLister
from paddlejob.plainjob.rendezvous.rendezvous import Rendezvous, Timing
from paddlejob.plainjob.run.console import Console
from paddlejob.plainjob.run.launch import is_legacy
from paddlejob.plainjob.run.pod import PodRunner, Program
from paddlejob.plainjob.run.process import SignalForwarder, handle_signals
from paddlejob.plainjob.settings import JobSettings

FINISHED = ".finished.json"
"""A file in the output directory, written after all trainers of the Job have succeeded."""


class StartOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    program: Program
    timing: Timing = Timing()
    work_directory: Path | None = None
    """Kept if given. Otherwise a temporary directory is used and removed."""


async def start_in_cluster(settings: JobSettings, options: StartOptions) -> int:
    """Run this pod's part of the Job and return its exit code."""
    from paddlejob.kube.transport.http import HttpTransport  # noqa: PLC0415 - aiohttp is slow to import

    console = Console(sys.stdout.buffer, sys.stderr.buffer)
    try:
        transport = HttpTransport(in_cluster_config(options.program.inherited))
    except kube_errors.ConfigError as error:
        console.say(f"error: {error}; use --local N to train without a cluster")
        return errors.SettingsError.exit_code
    me = PodIdentity(settings.pod_name, own_address(settings), settings.completion_index)
    async with Client(transport) as client:
        participant = Participant(settings, options, ClusterLister(client), me, console)
        with handle_signals(participant.interrupt), _directory(options.work_directory) as directory:
            return await participant.run(directory)


async def start_locally(settings: JobSettings, nodes: int, options: StartOptions) -> int:
    """Run all pods of the Job as local processes, and return the exit code of the first failure, or 0."""
    if nodes > 1 and is_legacy(options.program.command):
        _console(0).say("error: 'paddle pserver' listens on one network device: use --local 1")
        return errors.SettingsError.exit_code
    with (
        reserve_loopback(nodes, settings.port, settings.ports + 1) as place,
        _directory(options.work_directory) as directory,
    ):
        here = msgspec.structs.replace(settings, port=place.port)
        lister = LoopbackLister(place.addresses)
        participants = [
            Participant(here, options, lister, PodIdentity(address=address), _console(index))
            for index, address in enumerate(place.addresses)
        ]

        def interrupt_all(number: int) -> None:
            for participant in participants:
                participant.interrupt(number)

        with handle_signals(interrupt_all):
            running = [
                participant.run(directory / f"node_{index}") for index, participant in enumerate(participants)
            ]
            return first_failure(await asyncio.gather(*running))


def first_failure(codes: list[int]) -> int:
    """Return the exit code of the pod that caused the failure."""
    failed = [code for code in codes if code]
    causes = [code for code in failed if code != errors.PeerFailedError.exit_code]
    return (causes or failed or [0])[0]


def _console(node: int) -> Console:
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
        self._signals = SignalForwarder()

    def interrupt(self, number: int) -> None:
        self._signals.interrupt(number)

    async def run(self, directory: Path) -> int:
        """Take part in training and return the exit code of this pod."""
        task = asyncio.ensure_future(self._join_and_train(directory))
        self._signals.cancel_without_child(task)
        try:
            return await task
        except errors.PlainJobError as error:
            self._console.say(f"error: {error}")
            return error.exit_code
        except asyncio.CancelledError:
            if self._signals.received is None:
                raise
            return 128 + self._signals.received

    async def _join_and_train(self, directory: Path) -> int:
        async with self._rendezvous.join(self._all_done) as joined:
            if isinstance(joined, Finished):
                return self._exit_after(joined)
            peers, client = joined
            runner = PodRunner(
                self._settings,
                peers,
                client,
                program=self._options.program,
                directory=directory,
                console=self._console,
                signals=self._signals,
            )
            await runner.run()
        return 0

    def _all_done(self, peers: Peers) -> None:
        """Write the file that lets a pod that starts again after the end succeed."""
        if peers.job_uid:
            path = self._settings.output_directory / FINISHED
            try:
                content = msgspec.json.encode({"jobUid": peers.job_uid})
                manifest.replace_file(path, content, path.parent)
            except OSError as error:
                # Training has succeeded anyway, and the other pods wait for that message.
                self._console.say(
                    f"cannot write {path}: {error.strerror}; a pod that is started again will fail"
                )

    def _exit_after(self, finished: Finished) -> int:
        path = self._settings.output_directory / FINISHED
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if msgspec.json.decode(path.read_bytes()) == {"jobUid": finished.job_uid}:
                self._console.say("training has already finished")
                return 0
        raise errors.PeersMissingError(
            f"pod {finished.name} has finished and will not join again: delete the Job and create it again"
        )
