"""The flags that Deployments of paddle-operator carry, in every way that Go lets one write them."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

from paddlejob.cli.main import main


def run(*arguments: str):
    return CliRunner().invoke(main, ["operator", *arguments])


FLAGS = {
    "metrics-bind-address": (":9090", lambda it: it.process.metrics_address),
    "health-probe-bind-address": ("127.0.0.1:9091", lambda it: it.process.health_address),
    "namespace": ("team-a", lambda it: it.settings.namespace),
    "scheduling": ("volcano", lambda it: str(it.settings.jobs.scheduling)),
    "etcd-server": ("10.0.0.9:2379", lambda it: it.settings.jobs.etcd_server),
    "base-port": ("2379", lambda it: str(it.settings.jobs.base_port)),
    "port-range": ("40000,50000", lambda it: "{},{}".format(*it.settings.jobs.host_port_range)),
    "kubeconfig": ("/etc/kubeconfig", lambda it: it.kubeconfig),
    "zap-log-level": ("debug", lambda it: it.logging[0]),
    "zap-encoder": ("json", lambda it: it.logging[1]),
}
SPELLINGS = {
    "--name=value": lambda name, value: [f"--{name}={value}"],
    "--name value": lambda name, value: [f"--{name}", value],
    "-name=value": lambda name, value: [f"-{name}={value}"],
    "-name value": lambda name, value: [f"-{name}", value],
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS.keys())
@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_read(started, flag, spell):
    value, read = FLAGS[flag]
    result = run(*spell(flag, value), "--leader-elect")
    assert result.exit_code == 0, result.output
    assert (read(started), started.process.leader_election) == (value, True)


SWITCHES = {
    "": False,
    "--leader-elect": True,
    "-leader-elect": True,
    "--leader-elect=true": True,
    "--leader-elect=T": True,
    "-leader-elect=1": True,
    "--leader-elect=false": False,
    "-leader-elect=False": False,
    "--leader-elect --leader-elect=0": False,
}


@pytest.mark.parametrize(("written", "expected"), SWITCHES.items(), ids=SWITCHES.keys())
def test_a_switch_is_read_with_and_without_a_value(started, written, expected):
    assert run(*written.split(), "--namespace=a").exit_code == 0
    assert (started.process.leader_election, started.settings.namespace) == (expected, "a")


IGNORED = {
    "--initImage=busybox:1": "--initImage is ignored: pods have no init container",
    "--initImage busybox:1": "--initImage is ignored: pods have no init container",
    "-initImage=alpine:3.10": "--initImage is ignored: pods have no init container",
    "--zap-devel": "--zap-devel is ignored: use --log-level and --log-format",
    "--zap-devel=true": "--zap-devel is ignored: use --log-level and --log-format",
    "-zap-devel=false": "--zap-devel is ignored: use --log-level and --log-format",
    "--zap-stacktrace-level=error": "--zap-stacktrace-level is ignored: unexpected errors",
    "--zap-time-encoding=iso8601": "--zap-time-encoding is ignored: times are always",
}


@pytest.mark.parametrize(("written", "sentence"), IGNORED.items(), ids=IGNORED.keys())
def test_what_means_nothing_any_more_is_told_of_in_the_log(started, caplog, written, sentence):
    with caplog.at_level(logging.WARNING):
        result = run(*written.split(), "--namespace=a")
    assert result.exit_code == 0, result.output
    assert started.settings.namespace == "a"
    assert [record.getMessage() for record in caplog.records if sentence in record.getMessage()]


def test_nothing_is_told_of_otherwise(started, caplog):
    run("--leader-elect")
    assert started.process.leader_election
    assert not caplog.records


ZAP = {
    "--zap-log-level=1": ("debug", "text"),
    "--zap-log-level=warn": ("warning", "text"),
    "--zap-log-level=panic": ("error", "text"),
    "--zap-encoder=console": ("info", "text"),
    "--log-level=ERROR": ("error", "text"),
    "--log-format=json": ("info", "json"),
}


@pytest.mark.parametrize(("written", "expected"), ZAP.items(), ids=ZAP.keys())
def test_names_that_zap_has_for_the_log_are_read(started, written, expected):
    assert run(written).exit_code == 0
    assert started.logging == expected


REFUSED = {
    "--leader-elect=maybe": "'maybe' is not a boolean; use true or false",
    "--zap-log-level=loud": "'loud' is not one of 'debug', 'info', 'warning', 'error'",
    "--zap-encoder=xml": "'xml' is not one of 'text', 'json'",
    "--no-such-flag=1": "No such option",
    "--namespace": "requires an argument",
}


@pytest.mark.parametrize(("written", "sentence"), REFUSED.items(), ids=REFUSED.keys())
def test_what_nobody_understands_is_refused(started, written, sentence):
    result = run(written)
    assert (result.exit_code, started.settings) == (2, None)
    assert sentence in result.output


def test_a_value_may_look_like_a_flag(started):
    assert run("--namespace", "-namespace").exit_code == 0
    assert started.settings.namespace == "-namespace"


def test_an_empty_kubeconfig_is_none(started):
    assert run("--kubeconfig=").exit_code == 0
    assert started.kubeconfig is None


def test_help_shows_only_what_has_an_effect():
    help_text = run("-h").output
    assert "--zap-log-level" in help_text
    assert "--initImage" not in help_text
