from __future__ import annotations

from pathlib import Path

import pytest

from paddlejob.plainjob.errors import SettingsError
from paddlejob.plainjob.settings import read_settings

DOCUMENT = {
    "JOB_NAME": "paddle-cluster-job",
    "JOB_PATH": "/home/jobpath",
    "JOB_NAMESPACE": "default",
    "TRAIN_CONFIG_DIR": "recommendation",
    "CONF_PADDLE_NIC": "eth0",
    "CONF_PADDLE_PORT": "7164",
    "CONF_PADDLE_PORTS_NUM": "2",
    "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
    "CONF_PADDLE_GRADIENT_NUM": "3",
}


def test_the_documents_environment():
    settings = read_settings(DOCUMENT)
    assert settings.job_directory == Path("/home/jobpath/paddle-cluster-job")
    assert settings.config_directory == settings.job_directory / "recommendation"
    assert settings.output_directory == settings.job_directory / "output"
    assert (settings.ports, settings.barrier_port, settings.gradient_num) == (4, 7168, 3)


def test_three_variables_are_enough():
    settings = read_settings({name: DOCUMENT[name] for name in ("JOB_NAME", "JOB_PATH", "TRAIN_CONFIG_DIR")})
    assert settings == read_settings(DOCUMENT | {"CONF_PADDLE_GRADIENT_NUM": ""})


def test_kubernetes_own_variables_are_read():
    settings = read_settings(
        DOCUMENT | {"POD_IP": "10.0.0.1", "HOSTNAME": "pod-x", "JOB_COMPLETION_INDEX": "2"}
    )
    assert (settings.pod_ip, settings.pod_name, settings.completion_index) == ("10.0.0.1", "pod-x", 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"JOB_NAME": ""}, "JOB_NAME is not set", id="no job name"),
        pytest.param(
            {"CONF_PADDLE_PORT": "http"}, "CONF_PADDLE_PORT is 'http': must be an integer", id="not a number"
        ),
        pytest.param({"CONF_PADDLE_PORT": "70000"}, "between 1 and 65535", id="no such port"),
        pytest.param({"CONF_PADDLE_PORT": "65534"}, "its window would end above 65535", id="no room above"),
        pytest.param(
            {"CONF_PADDLE_PORTS_NUM": "1", "CONF_PADDLE_PORTS_NUM_SPARSE": "1"},
            "is 2: a pod needs",
            id="no room",
        ),
        pytest.param({"TRAINER_COUNT": "0"}, "TRAINER_COUNT is '0'", id="no threads"),
    ],
)
def test_refused(change, message):
    with pytest.raises(SettingsError, match=message):
        read_settings(DOCUMENT | change)


def test_the_binary_from_before_fleet_needs_one_port():
    change = {"CONF_PADDLE_PORTS_NUM": "1", "CONF_PADDLE_PORTS_NUM_SPARSE": "0"}
    assert read_settings(DOCUMENT | change, minimum_ports=1).ports == 1


def test_all_problems_are_told_at_once():
    with pytest.raises(
        SettingsError, match=r"JOB_NAME is not set.*; JOB_PATH is not set.*; TRAIN_CONFIG_DIR is not set"
    ):
        read_settings({})
