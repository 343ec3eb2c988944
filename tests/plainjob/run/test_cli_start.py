from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paddlejob.cli.setup import start as verb
from paddlejob.cli.setup.start import anchored, command

JOB = {"JOB_NAME": "job", "JOB_PATH": "/jobs", "TRAIN_CONFIG_DIR": "conf"}


@pytest.fixture
def calls(monkeypatch):
    """What would be started, and where."""
    seen = []

    async def here(settings, nodes, options):
        seen.append((nodes, settings, options))
        return 37

    async def there(settings, options):
        seen.append((None, settings, options))
        return 0

    monkeypatch.setattr(verb, "start_locally", here)
    monkeypatch.setattr(verb, "start_in_cluster", there)
    return seen


def start(*arguments, **environment):
    return CliRunner().invoke(command, [*arguments], env={**JOB, **environment})


def test_the_exit_code_of_training_is_the_commands(calls):
    assert start("--local", "3").exit_code == 37
    assert [nodes for nodes, _, _ in calls] == [3]


def test_without_local_it_is_a_pod(calls):
    assert start().exit_code == 0
    assert [nodes for nodes, _, _ in calls] == [None]


def test_unknown_arguments_are_the_trainers(calls):
    start("--lr", "0.1", "--deadline=5", "--local=0", "--k=a b", "--", "--deadline", "x")
    ((nodes, _, options),) = calls
    assert options.program.passed == ("--lr", "0.1", "--local=0", "--k=a b", "--deadline", "x")
    assert (nodes, options.timing.deadline_seconds) == (None, 5.0)


def test_the_program_is_found_from_the_directory_of_the_person(calls):
    start("--program", "venv/bin/python train.py")
    assert calls[0][2].program.command == f"{Path.cwd()}/venv/bin/python train.py"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param("python3 train.py", "python3 train.py", id="a name is looked up in PATH"),
        pytest.param(
            "bin/python train.py", "/here/bin/python train.py", id="a relative path is made absolute"
        ),
        pytest.param("/usr/bin/python3 x.py", "/usr/bin/python3 x.py", id="an absolute path stays"),
        pytest.param("paddle train", "paddle train", id="the legacy program stays"),
    ],
)
def test_anchored(program, expected):
    assert anchored(program, Path("/here")) == expected


def test_wrong_variables_are_all_named(calls):
    done = start(JOB_NAME="", CONF_PADDLE_PORT="x")
    assert (done.exit_code, calls) == (78, [])
    assert "JOB_NAME is not set" in done.stderr
    assert "CONF_PADDLE_PORT is 'x'" in done.stderr


def test_outside_a_cluster_it_says_how_to_go_on():
    done = start(KUBERNETES_SERVICE_HOST="")
    assert done.exit_code == 78
    assert "use --local N to train without a cluster" in done.output


def test_help_names_every_variable():
    text = start("--help").stdout
    for name in (
        "JOB_NAME",
        "JOB_PATH",
        "JOB_NAMESPACE",
        "TRAIN_CONFIG_DIR",
        "CONF_PADDLE_NIC",
        "CONF_PADDLE_PORT",
    ):
        assert name in text
    for name in (
        "CONF_PADDLE_PORTS_NUM",
        "CONF_PADDLE_PORTS_NUM_SPARSE",
        "CONF_PADDLE_GRADIENT_NUM",
        "TRAINER_COUNT",
    ):
        assert name in text
