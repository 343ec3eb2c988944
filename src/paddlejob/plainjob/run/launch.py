"""Build the command lines and environments of a pod's parameter server and trainer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import msgspec

from paddlejob.api.names import Env
from paddlejob.api.v1 import Role
from paddlejob.core.paddle_env import TRAINING_ROLES, endpoint, endpoints, gloo_env
from paddlejob.plainjob import errors
from paddlejob.plainjob.settings import JobSettings

DEFAULT_PROGRAM = "python3 train.py"
COMMENT = "paddle_process_by_paddle"
_GLOO_PORT, _TRAINER_PORT = 1, 2
"""Offsets from the first port of the window."""
_RESERVED_FLAGS = ("trainer_id", "save_dir")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer id of a pod, the addresses of all pods, and its data directory."""

    addresses: tuple[str, ...]
    me: int
    data_directory: Path
    job_id: str
    """Unique for every Job, so that processes of two Jobs do not take each other for peers."""


class ProcessSpec(msgspec.Struct, frozen=True):
    """A program to start."""

    name: str
    """Also the name of its log."""
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    """Added to the environment of `paddlejob start`."""
    settings: tuple[str, ...] = ()
    """Lines at the beginning of the log: the settings that are not in the command line."""


class Launch(msgspec.Struct, frozen=True):
    """Both processes, and the port that the server opens when it is ready."""

    server: ProcessSpec
    trainer: ProcessSpec
    ready_port: int


def is_legacy(program: str) -> bool:
    """Return whether a program is the `paddle train` of PaddlePaddle 0.x, before Fleet."""
    words = shlex.split(program)
    return len(words) >= 2 and PurePath(words[0]).name == "paddle" and words[1] == "train"


def plan_launch(
    settings: JobSettings, place: Place, program: str, passed: Sequence[str], inherited: Mapping[str, str]
) -> Launch:
    """Return the processes of this pod. Raises SettingsError for arguments that cannot be passed on."""
    if is_legacy(program):
        return _legacy(settings, place, shlex.split(program), passed)
    return _fleet(settings, place, shlex.split(program), passed, inherited)


def _fleet(
    settings: JobSettings,
    place: Place,
    program: Sequence[str],
    passed: Sequence[str],
    inherited: Mapping[str, str],
) -> Launch:
    command = (*program, *passed)
    gloo = inherited.get(Env.WITH_GLOO, "1") != "0"
    chosen = {name: value for name, value in _defaults(settings).items() if not inherited.get(name)}
    return Launch(
        server=ProcessSpec(
            "server", command, {**chosen, **_fleet_environment(settings, place, Role.PS, gloo=gloo)}
        ),
        trainer=ProcessSpec(
            "train",
            command,
            {**chosen, **_fleet_environment(settings, place, Role.WORKER, gloo=gloo)},
            tuple(_shown_settings(settings, place)),
        ),
        # With gloo, server 0 opens its own port only after all trainers have met at its rendezvous: waiting
        # for that port before the trainers start would never end.
        ready_port=settings.port + _GLOO_PORT if gloo and place.me == 0 else settings.port,
    )


def _fleet_environment(settings: JobSettings, place: Place, role: Role, *, gloo: bool) -> dict[str, str]:
    """Return the variables for Fleet's role maker and the directories of the training script."""
    mine, trainer_port = place.addresses[place.me], settings.port + _TRAINER_PORT
    port = settings.port if role is Role.PS else trainer_port
    environment = {
        Env.TRAINING_ROLE: TRAINING_ROLES[role],
        Env.POD_IP: mine,
        Env.PADDLE_PORT: str(port),
        Env.PSERVER_ENDPOINTS: endpoints(place.addresses, settings.port),
        Env.TRAINERS_NUM: str(len(place.addresses)),
        Env.TRAINER_ENDPOINTS: endpoints(place.addresses, trainer_port),
        Env.CURRENT_ENDPOINT: endpoint(mine, port),
        Env.TRAINER_ID: str(place.me),
        Env.JOB_ID: place.job_id,
        Env.SYS_JOB_ID: place.job_id,
        "DATA_DIR": str(place.data_directory),
        "DATA_SHARDED": "1",
    }
    meeting = gloo_env(1, place.addresses[0], settings.port + _GLOO_PORT) if gloo else {Env.WITH_GLOO: "0"}
    return {**environment, **meeting}


def _shown_settings(settings: JobSettings, place: Place) -> Iterator[str]:
    """Yield the flags that `paddle train` would get, and the servers as it lists them."""
    yield " ".join(format_flags(_train_flags(settings, place, {})))
    for number, address in enumerate(place.addresses):
        yield f"pserver {number} {endpoint(address, settings.port)}"


def _defaults(settings: JobSettings) -> dict[str, str]:
    """Return the variables that the environment of the Job may override."""
    chosen = {"CHECKPOINT_DIR": str(settings.output_directory), "PYTHONUNBUFFERED": "1"}
    if settings.trainer_count is not None:
        chosen["CPU_NUM"] = str(settings.trainer_count)
    return chosen


def _legacy(settings: JobSettings, place: Place, program: Sequence[str], passed: Sequence[str]) -> Launch:
    given = parse_flags(passed)
    for name in _RESERVED_FLAGS:
        if name in given:
            raise errors.SettingsError(f"--{name} is set by paddlejob start: remove it from the arguments")
    return Launch(
        server=ProcessSpec(
            "server",
            (program[0], "pserver", *format_flags(_pserver_flags(settings, len(place.addresses)))),
        ),
        trainer=ProcessSpec("train", (*program, *format_flags(_train_flags(settings, place, given)))),
        ready_port=settings.port,
    )


def _pserver_flags(settings: JobSettings, trainers: int) -> dict[str, str | None]:
    return {
        "port": str(settings.port),
        "ports_num": str(settings.ports_num),
        "ports_num_for_sparse": str(settings.ports_num_sparse),
        "nics": settings.nic,
        "comment": COMMENT,
        "num_gradient_servers": str(trainers),
    }


def _train_flags(
    settings: JobSettings, place: Place, given: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the flags in the order of the original document, with the given ones in between."""
    flags: dict[str, str | None] = {
        "nics": settings.nic,
        "port": str(settings.port),
        "ports_num": str(settings.ports_num),
        "comment": COMMENT,
        "pservers": ",".join(place.addresses),
    }
    if "ports_num_for_sparse" not in given:
        flags["ports_num_for_sparse"] = str(settings.ports_num_sparse)
    if settings.trainer_count is not None and "trainer_count" not in given:
        flags["trainer_count"] = str(settings.trainer_count)
    flags.update(given)
    flags.setdefault("num_gradient_servers", str(len(place.addresses)))
    return {**flags, "trainer_id": str(place.me), "save_dir": str(settings.output_directory)}


def separate_arguments(arguments: Sequence[str], own: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return our own arguments and the trainer's, both in order.

    `own` maps our options to whether they take a value. `--local` is ours only with a number of pods, because
    the trainer has a flag `--local=0`. Everything after `--` belongs to the trainer.
    """
    ours: list[str] = []
    others: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return ours, others + rest
        takes_next = own.get(name, False) and not equals and bool(rest)
        words = [word, rest.pop(0)] if takes_next else [word]
        is_trainers = name == "--local" and (value if equals else words[-1]) in ("0", "false")
        target = ours if name in own and not is_trainers else others
        target += words
    return ours, others


def parse_flags(arguments: Sequence[str]) -> dict[str, str | None]:
    """Return flags by name, in the order of their first occurrence. The last value wins.

    Accepts --key=value, --key value, and --key alone (None). Raises SettingsError for another word.
    """
    flags: dict[str, str | None] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise errors.SettingsError(
                f"argument {word!r} does not follow a --key: write --key=value or --key value"
            )
        if equals:
            flags[name] = value
        elif rest and not rest[0].startswith("--"):
            flags[name] = rest.pop(0)
        else:
            flags[name] = None
    return flags


def format_flags(flags: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return flags as --key=value words."""
    return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items())
