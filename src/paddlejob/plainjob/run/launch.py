"""Command lines and environments of the two processes of every pod: a parameter server and a trainer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import msgspec

from paddlejob.api.names import Env
from paddlejob.api.v1 import Role
from paddlejob.core.paddle_env import TRAINING_ROLES, endpoint, endpoints, gloo_env
from paddlejob.plainjob import errors
from paddlejob.plainjob.run import arguments
from paddlejob.plainjob.settings import JobSettings

DEFAULT_PROGRAM = "python3 train.py"
COMMENT = "paddle_process_by_paddle"
_OURS_AT_THE_END = ("trainer_id", "save_dir")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The trainer id of a pod, the addresses of all, and where its data is."""

    addresses: tuple[str, ...]
    me: int
    data_directory: Path
    job_id: str
    """Different for every Job, so that processes of two Jobs do not mistake each other for peers."""


class ProcessSpec(msgspec.Struct, frozen=True):
    """A program to start."""

    name: str
    """Also of its log."""
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    """In addition to our own."""


class Launch(msgspec.Struct, frozen=True):
    """Both processes, and the port that shows that the server is ready."""

    server: ProcessSpec
    trainer: ProcessSpec
    ready_port: int


def is_legacy(program: str) -> bool:
    """Whether a program is the `paddle train` of before Fleet (PaddlePaddle 0.x)."""
    words = shlex.split(program)
    return len(words) >= 2 and PurePath(words[0]).name == "paddle" and words[1] == "train"


def plan_launch(
    settings: JobSettings, place: Place, program: str, passed: Sequence[str], inherited: Mapping[str, str]
) -> Launch:
    """Return what this pod starts. Raises SettingsError for arguments that cannot be passed on."""
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
            "train", command, {**chosen, **_fleet_environment(settings, place, Role.WORKER, gloo=gloo)}
        ),
        # With gloo, server 0 opens its own port only after all trainers have met at the rendezvous that it
        # holds: waiting for that port before the trainers start would never end.
        ready_port=_gloo_port(settings) if gloo and place.me == 0 else settings.port,
    )


def _gloo_port(settings: JobSettings) -> int:
    return settings.port + 1


def _trainer_port(settings: JobSettings) -> int:
    return settings.port + 2


def _fleet_environment(settings: JobSettings, place: Place, role: Role, *, gloo: bool) -> dict[str, str]:
    """What Fleet's role maker reads, and the directories that the training script needs."""
    mine = place.addresses[place.me]
    port = settings.port if role is Role.PS else _trainer_port(settings)
    environment = {
        Env.TRAINING_ROLE: TRAINING_ROLES[role],
        Env.POD_IP: mine,
        Env.PADDLE_PORT: str(port),
        Env.PSERVER_ENDPOINTS: endpoints(place.addresses, settings.port),
        Env.TRAINERS_NUM: str(len(place.addresses)),
        Env.TRAINER_ENDPOINTS: endpoints(place.addresses, _trainer_port(settings)),
        Env.CURRENT_ENDPOINT: endpoint(mine, port),
        Env.TRAINER_ID: str(place.me),
        Env.JOB_ID: place.job_id,
        "SYS_JOB_ID": place.job_id,
        "DATA_DIR": str(place.data_directory),
        "DATA_SHARDED": "1",
    }
    meeting = gloo_env(1, place.addresses[0], _gloo_port(settings)) if gloo else {Env.WITH_GLOO: "0"}
    return {**environment, **meeting}


def _defaults(settings: JobSettings) -> dict[str, str]:
    """What the environment of the Job may override."""
    chosen = {"CHECKPOINT_DIR": str(settings.output_directory), "PYTHONUNBUFFERED": "1"}
    if settings.trainer_count is not None:
        chosen["CPU_NUM"] = str(settings.trainer_count)
    return chosen


def _legacy(settings: JobSettings, place: Place, program: Sequence[str], passed: Sequence[str]) -> Launch:
    given = arguments.as_flags(passed)
    for name in _OURS_AT_THE_END:
        if name in given:
            raise errors.SettingsError(f"--{name} is set by paddlejob start: remove it from the arguments")
    return Launch(
        server=ProcessSpec(
            "server",
            (program[0], "pserver", *arguments.as_words(_pserver_flags(settings, len(place.addresses)))),
        ),
        trainer=ProcessSpec("train", (*program, *arguments.as_words(_train_flags(settings, place, given)))),
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
    """The document's flags in the document's order; what was passed keeps its own order between them."""
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
