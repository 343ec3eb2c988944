from __future__ import annotations

import pytest
from click.testing import CliRunner

from paddlejob.cli.catalog import VERBS
from paddlejob.cli.main import main


def run(*words: str, **options):
    return CliRunner().invoke(main, list(words), **options)


def test_help_lists_every_verb():
    result = run("--help")
    assert result.exit_code == 0
    assert all(verb in result.output for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb):
    result = run(verb, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_a_verb_that_does_not_exist_is_refused():
    result = run("no-such-verb")
    assert result.exit_code == 2
    assert "No such command" in result.output


@pytest.mark.parametrize("text", ["1,2", "80,65000", "60000,70000", "abc", "40000,40005"])
def test_a_port_range_that_cannot_be_is_refused(text, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
    )
    result = run("operator", "--kubeconfig", str(config), "--port-range", text)
    assert result.exit_code == 2
    assert "must be FIRST,LAST between 1024 and 65535" in result.output


def test_without_a_cluster_it_says_what_it_tried(tmp_path):
    result = run("operator", "--kubeconfig", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "none" in result.output


@pytest.mark.parametrize(
    ("host", "expected"),
    [("10.96.0.1", False), ("fd00:1::1", True), ("", False)],
    ids=["IPv4", "IPv6", "outside"],
)
def test_the_address_of_the_api_server_tells_of_ipv6(started, monkeypatch, host, expected):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    assert run("operator").exit_code == 0
    assert started.settings.jobs.pods_have_ipv6 is expected
