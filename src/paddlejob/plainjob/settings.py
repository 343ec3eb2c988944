"""The environment variables of `paddlejob start`, the same as for the original start_paddle.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paddlejob.plainjob import errors

MINIMUM_PORTS = 3
"""The ports of one pod: server, rendezvous of the trainers, trainer."""
_MAX_DIGITS = 20


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a pod of the Job."""

    job_name: str
    """JOB_NAME: the Job, and the directory of its data."""
    job_path: Path
    """JOB_PATH: the mount point of the shared storage."""
    train_config_dir: str
    """TRAIN_CONFIG_DIR: the training scripts, inside the job's directory."""
    namespace: str = "default"
    """JOB_NAMESPACE."""
    nic: str = "eth0"
    """CONF_PADDLE_NIC: the network device with the address that the other pods use."""
    port: int = 7164
    """CONF_PADDLE_PORT: the first port of the window."""
    ports_num: int = 2
    """CONF_PADDLE_PORTS_NUM: ports for dense parameters of `paddle pserver`."""
    ports_num_sparse: int = 2
    """CONF_PADDLE_PORTS_NUM_SPARSE: ports for sparse parameters of `paddle pserver`."""
    gradient_num: int | None = None
    """CONF_PADDLE_GRADIENT_NUM: the number of trainers; by default the Job's parallelism."""
    trainer_count: int | None = None
    """TRAINER_COUNT: threads of a trainer."""
    pod_ip: str = ""
    """POD_IP: the address of this pod, if the Job sets it."""
    pod_name: str = ""
    """POD_NAME, or the host name, which is the same in a pod."""
    completion_index: int | None = None
    """JOB_COMPLETION_INDEX: set by Kubernetes in pods of an Indexed Job."""

    @property
    def job_directory(self) -> Path:
        """Shards, scripts and output."""
        return self.job_path / self.job_name

    @property
    def output_directory(self) -> Path:
        """Logs and models."""
        return self.job_directory / "output"

    @property
    def config_directory(self) -> Path:
        """The training scripts."""
        return self.job_directory / self.train_config_dir

    @property
    def ports(self) -> int:
        """The number of ports in the window."""
        return self.ports_num + self.ports_num_sparse

    @property
    def barrier_port(self) -> int:
        """The port of the coordinator: the first one after the window."""
        return self.port + self.ports


class _Reader:
    """Collects all errors, so that one message names them all."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.problems: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        return self._env.get(name, "").strip() or default

    def required(self, name: str, meaning: str) -> str:
        value = self.text(name)
        if not value:
            self.problems.append(f"{name} is not set: {meaning}")
        return value

    def number(self, name: str, least: int, most: int = 65535) -> int | None:
        value = self.text(name)
        if not value:
            return None
        # Python refuses to read a number of thousands of digits.
        if not value.isdecimal() or len(value) > _MAX_DIGITS or not least <= int(value) <= most:
            shown = value if len(value) <= _MAX_DIGITS else f"{value[:_MAX_DIGITS]}..."
            self.problems.append(f"{name} is {shown!r}: must be an integer between {least} and {most}")
            return None
        return int(value)

    def number_or(self, name: str, default: int, least: int) -> int:
        found = self.number(name, least)
        return default if found is None else found


def read_settings(
    env: Mapping[str, str], hostname: Callable[[], str] = lambda: "", minimum_ports: int = MINIMUM_PORTS
) -> JobSettings:
    """Return the settings in an environment. Raises SettingsError that names every wrong variable."""
    reader = _Reader(env)
    settings = JobSettings(
        job_name=reader.required("JOB_NAME", "set it to the Job's name; its data is in JOB_PATH/JOB_NAME"),
        job_path=Path(reader.required("JOB_PATH", "set it to the mount point of the shared storage")),
        train_config_dir=reader.required("TRAIN_CONFIG_DIR", "set it to the training scripts' directory"),
        namespace=reader.text("JOB_NAMESPACE", "default"),
        nic=reader.text("CONF_PADDLE_NIC", "eth0"),
        port=reader.number_or("CONF_PADDLE_PORT", 7164, least=1),
        ports_num=reader.number_or("CONF_PADDLE_PORTS_NUM", 2, least=1),
        ports_num_sparse=reader.number_or("CONF_PADDLE_PORTS_NUM_SPARSE", 2, least=0),
        gradient_num=reader.number("CONF_PADDLE_GRADIENT_NUM", least=1),
        trainer_count=reader.number("TRAINER_COUNT", least=1),
        pod_ip=reader.text("POD_IP"),
        pod_name=reader.text("POD_NAME") or reader.text("HOSTNAME") or hostname(),
        completion_index=reader.number("JOB_COMPLETION_INDEX", least=0),
    )
    problems = reader.problems + _window_problems(settings, minimum_ports)
    if problems:
        raise errors.SettingsError("; ".join(problems))
    return settings


def _window_problems(settings: JobSettings, minimum_ports: int) -> list[str]:
    if settings.ports < minimum_ports:
        names = "CONF_PADDLE_PORTS_NUM + CONF_PADDLE_PORTS_NUM_SPARSE"
        return [f"{names} is {settings.ports}: a pod needs at least {minimum_ports} ports"]
    if settings.barrier_port > 65535:
        return [f"CONF_PADDLE_PORT is {settings.port}: its window would end above 65535"]
    return []
