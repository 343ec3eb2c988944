"""Whole trainings: real processes, real sockets, a stand-in for the training script."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import in_cluster_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.plainjob.rendezvous.address import reserve_loopback
from paddlejob.plainjob.rendezvous.peers import PodIdentity
from paddlejob.plainjob.rendezvous.pod_lister import ClusterLister
from paddlejob.plainjob.rendezvous.rendezvous import Timing
from paddlejob.plainjob.run.console import Console
from paddlejob.plainjob.run.pod import Program
from paddlejob.plainjob.run.start import Participant, StartOptions, first_failure, start_locally
from paddlejob.plainjob.settings import JobSettings
from plainjob.api_server import api_server, pod_environment, service_account
from plainjob.line_files import lines, run_split, write
from plainjob.pods import pod
from tests.support.waiting import eventually_async

PROGRAMS = Path(__file__).parents[1] / "programs"
TIMING = Timing(deadline_seconds=60, poll_seconds=0.05)
PYTHON = f"{sys.executable} train.py"


@pytest.fixture
def settings(tmp_path):
    found = JobSettings(job_name="job", job_path=tmp_path, train_config_dir="programs", port=14000)
    write(tmp_path / "train.txt", lines(9))
    run_split(found.job_directory, 3, tmp_path / "train.txt", config_directories=(PROGRAMS,))
    return found


def options(*passed, command=PYTHON, **inherited):
    program = Program(
        command=command,
        passed=passed,
        inherited={**os.environ, **inherited},
        grace_seconds=20,
        lone_trainer_seconds=0.1,
    )
    return StartOptions(program=program, timing=TIMING)


def log(settings, node, name="train"):
    return (settings.output_directory / f"node_{node}" / f"{name}.log").read_text()


def report(settings, node):
    return json.loads(next(line for line in log(settings, node).splitlines() if line.startswith("{")))


async def test_three_nodes_train_each_on_its_own_shard(settings):
    assert await start_locally(settings, 3, options("--lr", "0.1")) == 0
    reports = [report(settings, node) for node in range(3)]
    assert [found["data"]["train.txt"] for found in reports] == [
        "line 0\nline 1\nline 2\n",
        "line 3\nline 4\nline 5\n",
        "line 6\nline 7\nline 8\n",
    ]
    assert [found["trainer"] for found in reports] == [0, 1, 2]
    assert len({found["environment"]["PADDLE_PSERVERS_IP_PORT_LIST"] for found in reports}) == 1
    assert reports[0]["arguments"] == ["--lr", "0.1"]
    assert "serving" in log(settings, 2, "server")


async def test_a_trainers_exit_code_is_passed_on_and_ends_the_others(settings, capfdbinary):
    assert await start_locally(settings, 3, options("--fail", "1:37")) == 37
    assert b"trainer 1 (127." in capfdbinary.readouterr().err


async def test_a_server_that_ends_at_once_is_a_failure_even_with_code_0(settings, capfdbinary):
    assert await start_locally(settings, 3, options("--server-fails")) == 1
    assert b"its server exited with code 0 too early" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("code", "message"), [(9, b"its server exited with code 9"), (0, b"its server exited, but")]
)
async def test_a_server_that_ends_while_training_is_a_failure(settings, capfdbinary, code, message):
    assert await start_locally(settings, 3, options("--server-ends", str(code))) == 1
    assert message in capfdbinary.readouterr().err


async def test_data_for_another_number_of_nodes_is_refused(settings, capfdbinary):
    assert await start_locally(settings, 2, options()) == 66
    assert b"is split into 3 shards, but the Job has 2 trainers" in capfdbinary.readouterr().err


async def test_a_signal_reaches_the_trainers(settings):
    running = asyncio.create_task(start_locally(settings, 3, options("--hang")))
    await eventually_async(
        lambda: all((settings.output_directory / f"node_{n}/train.log").exists() for n in range(3))
    )
    await eventually_async(lambda: all('"trainer"' in log(settings, node) for node in range(3)))
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 143


def processes_of(settings):
    """Return the ids of all processes that were started for a job."""
    mark = f"CHECKPOINT_DIR={settings.output_directory}".encode()
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.add(int(path.parent.name))
    return found


async def test_nothing_is_left_of_a_run_that_is_killed(settings, tmp_path):
    job = {"JOB_NAME": "job", "JOB_PATH": str(settings.job_path), "TRAIN_CONFIG_DIR": "programs"}
    command = f"{sys.executable} -m paddlejob.cli.main start --local 3 --hang --helper --program"
    started = subprocess.Popen(
        [*command.split(), PYTHON],
        env={**os.environ, **job, "CONF_PADDLE_PORT": "14000", "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with started:
        try:
            await eventually_async(lambda: len(processes_of(settings)) == 9)  # servers, trainers and helpers
        finally:
            started.kill()
    assert started.returncode == -9
    await eventually_async(lambda: not processes_of(settings))


async def test_a_signal_ends_the_wait_for_others(settings, tmp_path):
    async with cluster(settings, tmp_path) as pods:
        waiting = asyncio.create_task(pods.participants[0].run(tmp_path / "w0"))
        await asyncio.sleep(0)
        pods.participants[0].interrupt(signal.SIGTERM)
        assert await waiting == 143


class Cluster:
    """Three pods of a Job, each with its own client of one API server."""

    def __init__(self, server, settings, participants):
        self.server, self.settings, self.participants = server, settings, participants


@asynccontextmanager
async def cluster(settings, tmp_path, chosen=None):
    account = service_account(tmp_path / "sa")
    async with AsyncExitStack() as stack:
        place = stack.enter_context(reserve_loopback(3, settings.port, 5))
        server = await stack.enter_async_context(api_server())
        server.pods = [pod(f"p{index}", address) for index, address in enumerate(place.addresses)]
        found = Cluster(server, msgspec.structs.replace(settings, port=place.port), [])
        for index, address in enumerate(place.addresses):
            transport = HttpTransport(in_cluster_config(pod_environment(server), account))
            client = await stack.enter_async_context(Client(transport))
            mine = with_environment(chosen or options(), POD_IP=address, RECORD_NAME=f"p{index}")
            console = Console(sys.stdout.buffer, sys.stderr.buffer)
            me = PodIdentity(f"p{index}", address)
            found.participants.append(Participant(found.settings, mine, ClusterLister(client), me, console))
        yield found


def with_environment(chosen, **added):
    program = msgspec.structs.replace(chosen.program, inherited={**chosen.program.inherited, **added})
    return msgspec.structs.replace(chosen, program=program)


async def run_all(pods, tmp_path):
    runs = (participant.run(tmp_path / f"w{index}") for index, participant in enumerate(pods.participants))
    return await asyncio.gather(*runs)


async def test_three_pods_of_a_job_find_each_other_through_the_api(settings, tmp_path):
    async with cluster(settings, tmp_path) as pods:
        assert await run_all(pods, tmp_path) == [0, 0, 0]
    assert [report(settings, node)["trainer"] for node in range(3)] == [0, 1, 2]


async def test_a_note_that_cannot_be_written_does_not_undo_a_success(settings, tmp_path, capfdbinary):
    (settings.output_directory / ".finished.json").mkdir(parents=True)
    async with cluster(settings, tmp_path) as pods:
        assert await run_all(pods, tmp_path) == [0, 0, 0]
    assert capfdbinary.readouterr().err.count(b".finished.json: Is a directory; a pod that is") == 1


async def test_only_the_failed_pod_counts_against_the_job(settings, tmp_path):
    async with cluster(settings, tmp_path, options("--fail", "2:5")) as pods:
        assert await run_all(pods, tmp_path) == [75, 75, 5]


async def test_a_pod_started_again_after_the_end_succeeds_at_once(settings, tmp_path):
    async with cluster(settings, tmp_path) as pods:
        await run_all(pods, tmp_path)
        pods.server.pods[0] = pod("p0", "127.1.0.1", "Succeeded")
        assert await pods.participants[1].run(tmp_path / "again") == 0


async def test_a_sibling_that_finished_without_us_is_not_waited_for(settings, tmp_path, capfdbinary):
    async with cluster(settings, tmp_path) as pods:
        pods.server.pods[0] = pod("p0", "127.1.0.1", "Succeeded")
        assert await pods.participants[1].run(tmp_path / "w") == 69
    assert b"pod p0 has finished and will not join again" in capfdbinary.readouterr().err


PASSED = [
    "--ports_num_for_sparse=2",
    "--config=./trainer_config.py",
    "--trainer_count",
    "4",
    "--num_passes=10",
    "--use_gpu=0",
    "--log_period",
    "50",
    "--dot_period=10",
    "--saving_period=1",
    "--local=0",
]


async def test_the_legacy_program_gets_exactly_the_documents_arguments(settings, tmp_path):
    (tmp_path / "record").mkdir()
    chosen = options(*PASSED, command=f"{PROGRAMS}/paddle train", RECORD_DIR=str(tmp_path / "record"))
    async with cluster(settings, tmp_path, chosen) as pods:
        assert await run_all(pods, tmp_path) == [0, 0, 0]
        port, addresses = pods.settings.port, [found.status.pod_ip for found in pods.server.pods]
    for node in range(3):
        trainer = json.loads((tmp_path / "record" / f"train-p{node}.json").read_text())
        assert trainer["arguments"] == [
            "train",
            "--nics=eth0",
            f"--port={port}",
            "--ports_num=2",
            "--comment=paddle_process_by_paddle",
            f"--pservers={','.join(addresses)}",
            "--ports_num_for_sparse=2",
            "--config=./trainer_config.py",
            "--trainer_count=4",
            "--num_passes=10",
            "--use_gpu=0",
            "--log_period=50",
            "--dot_period=10",
            "--saving_period=1",
            "--local=0",
            "--num_gradient_servers=3",
            f"--trainer_id={node}",
            f"--save_dir={settings.output_directory}",
        ]
        header = log(settings, node).splitlines()[0]
        words = shlex.join([f"{PROGRAMS}/paddle", *trainer["arguments"]])
        assert re.fullmatch(rf"--- \S+ trainer {node} commandline: {re.escape(words)}", header)
        assert {"data", "train.py"} <= set(trainer["directory"])
        assert json.loads((tmp_path / "record" / f"pserver-p{node}.json").read_text())["arguments"] == [
            "pserver",
            f"--port={port}",
            "--ports_num=2",
            "--ports_num_for_sparse=2",
            "--nics=eth0",
            "--comment=paddle_process_by_paddle",
            "--num_gradient_servers=3",
        ]


async def test_legacy_servers_do_not_fit_on_one_machine(settings, capfdbinary):
    assert await start_locally(settings, 3, options(command="paddle train")) == 78
    assert b"use --local 1" in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        pytest.param([0, 0], 0, id="all is well"),
        pytest.param([75, 3], 3, id="the one that failed by itself"),
        pytest.param([75, 75], 75, id="nobody did"),
    ],
)
def test_first_failure(codes, code):
    assert first_failure(codes) == code
