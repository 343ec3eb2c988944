"""Secrets are planted where users keep them, and searched for in all that is printed, logged and stored."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from devcluster import Cluster
from paddlejob.cli.kubectl import group
from paddlejob.kube.resource import CONFIG_MAPS
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.apiserver import installed
from tests.conftest import SECRETS

pytestmark = pytest.mark.apiserver
ENVIRONMENT = [
    {"name": "DB_PASSWORD", "value": "planted-environment"},
    {"name": "API_TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
    {"name": "DATA", "value": "s3://me:planted-url@bucket/data"},
]
ARGUMENTS = ["train.py", "--password=planted-argument", "--url", "https://me:planted-url@example.com"]


@pytest.fixture
def pdj(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(kubeconfig: Path, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(group, [f"--kubeconfig={kubeconfig}", *arguments])
        assert done.exit_code == code, done.output
        return done.output

    return run


async def test_a_job_with_secrets_fails_and_nobody_is_told_them(
    control_plane: Cluster, namespace: str, pdj: Callable[..., str], tmp_path: Path
):
    installed.apply(control_plane, installed.CRD, installed.OPERATOR)
    secret = {"metadata": {"name": "keys"}, "stringData": {"token": "planted-token"}}
    control_plane.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    built = job().worker(2).spec(backoffLimit=1)
    [container] = built.manifest["spec"]["worker"]["template"]["spec"]["containers"]
    container.update(args=ARGUMENTS, env=ENVIRONMENT)
    arguments = ["--log-level=debug", f"--namespace={namespace}"]
    kubeconfig = installed.account_kubeconfig(control_plane)
    async with installed.simulated_node(control_plane, namespace) as stage:
        stage.fates.set("demo-worker-1", Exit(1), Exit(1))
        with installed.operators(kubeconfig, arguments, tmp_path) as [operator]:
            await stage.submit(built)
            await stage.phase("Failed")
            records = f"/api/v1/namespaces/{namespace}/configmaps"

            async def is_recorded() -> bool:
                found = await stage.client.list(CONFIG_MAPS, namespace)
                return any("history" in each["metadata"]["name"] for each in found.items)

            await stage.until(is_recorded, "the job is recorded")
        outputs = {
            "log": operator.log.read_text(),
            "events": json.dumps(control_plane.request("GET", f"/api/v1/namespaces/{namespace}/events")),
            "status": json.dumps(await stage.status()),
            "records": json.dumps(control_plane.request("GET", records)),
        }
    for verb in ("get", "describe demo", "explain demo", "events demo", "history", "postmortem demo -o json"):
        outputs[verb] = await asyncio.to_thread(pdj, control_plane.kubeconfig, "-n", namespace, *verb.split())
    outputs["page"] = await asyncio.to_thread(
        pdj, control_plane.kubeconfig, "-n", namespace, "postmortem", "demo"
    )
    outputs["page"] += (tmp_path / "demo.html").read_text()
    assert "demo" in outputs["log"]
    assert {name for name, text in outputs.items() if SECRETS.search(text)} == set()


def kubeconfig(folder: Path, server: str, user: dict[str, object], **cluster: object) -> Path:
    file = folder / "kubeconfig"
    entry = {"server": server, "insecure-skip-tls-verify": True, **cluster}
    config = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": entry}],
        "users": [{"name": "a", "user": user}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


KEY = base64.b64encode(b"-----BEGIN PRIVATE KEY-----\nplanted-key\n-----END PRIVATE KEY-----\n").decode()
VARIABLE = [{"name": "SECRET", "value": "planted-variable"}]
PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "./plugin"}


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        pytest.param({"token": "planted-token"}, {}, id="a token"),
        pytest.param({"username": "me", "password": "planted-password"}, {}, id="a password"),
        pytest.param({"client-certificate-data": "YQ==", "client-key-data": KEY}, {}, id="a key"),
        pytest.param({"client-key-data": KEY}, {}, id="a key alone"),
        pytest.param({"tokenFile": "token"}, {}, id="a file"),
        pytest.param({"exec": {**PLUGIN, "args": ["token"]}}, {}, id="a plugin's token"),
        pytest.param({"exec": {**PLUGIN, "args": ["garbage"]}}, {}, id="a plugin's garbage"),
        pytest.param({"exec": {**PLUGIN, "env": VARIABLE}}, {}, id="a plugin's variable"),
        pytest.param({"token": "planted-\ntoken"}, {}, id="a token that cannot be sent"),
        pytest.param(
            {"token": "planted-token"}, {"proxy-url": "http://me:planted-proxy@127.0.0.1:1"}, id="a proxy"
        ),
        pytest.param({"token": ["planted-token"]}, {}, id="a token that is none"),
    ],
)
def test_credentials_that_do_not_work_are_not_shown(control_plane, pdj, tmp_path, user, cluster):
    plugin = tmp_path / "plugin"
    plugin.write_text(
        """#!/bin/sh
case "$1" in
token) echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
              "status": {"token": "planted-from-plugin"}}' ;;
garbage) echo '{"apiVersion": 1, "status": {"token": "planted-from-plugin"' ;;
*) exit 3 ;;
esac
"""
    )
    plugin.chmod(0o755)
    (tmp_path / "token").write_text("planted-in-a-file")
    file = kubeconfig(tmp_path, control_plane.url, user, **cluster)
    said = pdj(file, "get", code=2)
    assert said.startswith("error: ")
    assert not SECRETS.search(said), said


def test_a_server_with_a_password_in_its_url_is_named_without_it(pdj, tmp_path):
    file = kubeconfig(tmp_path, "https://me:planted-url@127.0.0.1:1", {})
    said = pdj(file, "get", code=2)
    assert "127.0.0.1" in said
    assert not SECRETS.search(said), said
