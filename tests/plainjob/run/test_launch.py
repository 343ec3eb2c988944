from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.run.launch import Place, is_legacy, plan_launch
from paddlejob.plainjob.settings import read_settings
from plainjob.test_settings import DOCUMENT

SETTINGS = read_settings(DOCUMENT)
# As the document's train.log shows them; the first is not the smallest when sorted as text.
ADDRESSES = ("192.168.129.66", "192.168.129.71", "192.168.223.143")
PLACE = Place(addresses=ADDRESSES, me=1, data_directory=Path("/place/data"), job_id="uid-1")
PASSED = [
    "--ports_num_for_sparse=2",
    "--config=./trainer_config.py",
    "--trainer_count=4",
    "--num_passes=10",
    "--use_gpu=0",
    "--log_period=50",
    "--dot_period=10",
    "--saving_period=1",
    "--local=0",
]


def launch(program="python3 train.py", passed=(), me=1, settings=SETTINGS, **inherited):
    return plan_launch(settings, msgspec.structs.replace(PLACE, me=me), program, passed, inherited)


def test_the_legacy_trainer_gets_the_documents_flags_in_the_documents_order():
    assert launch("paddle train", PASSED, me=0).trainer.command == (
        "paddle",
        "train",
        "--nics=eth0",
        "--port=7164",
        "--ports_num=2",
        "--comment=paddle_process_by_paddle",
        "--pservers=192.168.129.66,192.168.129.71,192.168.223.143",
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
        "--trainer_id=0",
        "--save_dir=/home/jobpath/paddle-cluster-job/output",
    )


def test_the_legacy_server_gets_its_flags_in_order():
    assert launch("/opt/bin/paddle train").server.command == (
        "/opt/bin/paddle",
        "pserver",
        "--port=7164",
        "--ports_num=2",
        "--ports_num_for_sparse=2",
        "--nics=eth0",
        "--comment=paddle_process_by_paddle",
        "--num_gradient_servers=3",
    )


def test_legacy_arguments_in_two_words_and_twice_are_the_same():
    passed = ["--ports_num", "4", "--config", "a.py", "--config", "b.py"]
    command = launch("paddle train", passed).trainer.command
    assert command[4:] == (
        "--ports_num=4",
        "--comment=paddle_process_by_paddle",
        "--pservers=192.168.129.66,192.168.129.71,192.168.223.143",
        "--ports_num_for_sparse=2",
        "--config=b.py",
        "--num_gradient_servers=3",
        "--trainer_id=1",
        "--save_dir=/home/jobpath/paddle-cluster-job/output",
    )


def test_the_number_of_gradient_servers_can_be_passed():
    command = launch("paddle train", ["--num_gradient_servers=2", "--config=a.py"]).trainer.command
    assert [word for word in command if "gradient" in word] == ["--num_gradient_servers=2"]


def test_trainer_count_comes_from_the_environment_unless_passed():
    settings = read_settings(DOCUMENT | {"TRAINER_COUNT": "8"})
    assert "--trainer_count=8" in launch("paddle train", settings=settings).trainer.command
    assert "--trainer_count=8" not in launch("paddle train", PASSED, settings=settings).trainer.command


@pytest.mark.parametrize("flag", ["--trainer_id=7", "--save_dir=/x"])
def test_flags_that_are_ours_are_refused(flag):
    with pytest.raises(SettingsError, match="is set by paddlejob start"):
        launch("paddle train", [flag])


@pytest.mark.parametrize(
    ("program", "legacy"),
    [
        ("paddle train", True),
        ("/usr/local/bin/paddle train --x", True),
        ("paddle", False),
        ("python3 train.py", False),
        ("paddle pserver", False),
    ],
)
def test_what_is_legacy(program, legacy):
    assert is_legacy(program) is legacy


def test_fleet_server_and_trainer_run_one_program_in_two_roles():
    found = launch("python3 train.py", ["--lr", "0.1"])
    assert found.server.command == found.trainer.command == ("python3", "train.py", "--lr", "0.1")
    assert (found.server.environment["TRAINING_ROLE"], found.trainer.environment["TRAINING_ROLE"]) == (
        "PSERVER",
        "TRAINER",
    )


def test_what_fleet_reads():
    environment = launch().server.environment
    assert {name: value for name, value in environment.items() if name.startswith(("PADDLE_", "POD_"))} == {
        "POD_IP": "192.168.129.71",
        "PADDLE_PORT": "7164",
        "PADDLE_PSERVERS_IP_PORT_LIST": "192.168.129.66:7164,192.168.129.71:7164,192.168.223.143:7164",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_TRAINER_ENDPOINTS": "192.168.129.66:7166,192.168.129.71:7166,192.168.223.143:7166",
        "PADDLE_CURRENT_ENDPOINT": "192.168.129.71:7164",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_JOB_ID": "uid-1",
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "192.168.129.66:7165",
    }


def test_the_trainers_log_begins_with_the_settings_of_the_guide():
    flags, *servers = launch().trainer.settings
    assert flags == (
        "--nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle "
        "--pservers=192.168.129.66,192.168.129.71,192.168.223.143 --ports_num_for_sparse=2 "
        "--num_gradient_servers=3 --trainer_id=1 --save_dir=/home/jobpath/paddle-cluster-job/output"
    )
    assert servers == [
        "pserver 0 192.168.129.66:7164",
        "pserver 1 192.168.129.71:7164",
        "pserver 2 192.168.223.143:7164",
    ]


def test_a_servers_own_endpoint_is_in_the_list_letter_by_letter():
    for me in range(3):
        environment = launch(me=me).server.environment
        own = f"{environment['POD_IP']}:{environment['PADDLE_PORT']}"
        assert environment["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")[me] == own


@pytest.mark.parametrize(
    ("me", "gloo", "port"),
    [
        pytest.param(0, "1", 7165, id="with gloo server 0 is ready when the rendezvous is"),
        pytest.param(1, "1", 7164, id="the others are ready when their own port is"),
        pytest.param(0, "0", 7164, id="without gloo there is no rendezvous"),
    ],
)
def test_the_port_that_shows_readiness(me, gloo, port):
    assert launch(me=me, PADDLE_WITH_GLOO=gloo).ready_port == port


def test_the_jobs_own_environment_may_choose_directories_and_threads():
    settings = read_settings(DOCUMENT | {"TRAINER_COUNT": "8"})
    ours = launch(settings=settings).trainer.environment
    assert (ours["CHECKPOINT_DIR"], ours["CPU_NUM"]) == ("/home/jobpath/paddle-cluster-job/output", "8")
    theirs = launch(settings=settings, CHECKPOINT_DIR="/x", CPU_NUM="1").trainer.environment
    assert "CHECKPOINT_DIR" not in theirs
    assert "CPU_NUM" not in theirs
