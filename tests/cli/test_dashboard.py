"""`paddlejob dashboard` as a process: what a pod and a kubelet see of it."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from paddlejob.cli.main import main

SERVING = re.compile(r"Serving the dashboard on port (\d+) over (HTTPS?)\.\n")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(
        'clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]\n'
        "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    )
    return path


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=a"
    names = "subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*command.split(), "-addext", names, "-out", chain, "-keyout", key], check=True, capture_output=True
    )
    return chain, key


@pytest.mark.parametrize("is_https", [False, True])
def test_it_serves_until_it_is_told_to_end(kubeconfig, certificate, is_https):
    chain, key = certificate
    files = [f"--tls-cert-file={chain}", f"--tls-private-key-file={key}"] if is_https else []
    command = ["-u", "-m", "paddlejob.cli.main", "dashboard", "--bind-address=127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, *command, f"--kubeconfig={kubeconfig}", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port, scheme = SERVING.fullmatch(process.stdout.readline()).groups()
        assert scheme == ("HTTPS" if is_https else "HTTP")
        context = ssl.create_default_context(cafile=chain) if is_https else None
        base = f"{scheme.lower()}://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{base}/healthz", context=context) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(f"{base}/api/about", context=context)
        refused.value.close()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (errors, process.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param((), "not running in a pod: KUBERNETES_SERVICE_HOST is not set", id="outside a cluster"),
        pytest.param(("--tls-cert-file={config}",), "belong together", id="a certificate without its key"),
        pytest.param(
            ("--kubeconfig={config}", "--tls-cert-file={config}", "--tls-private-key-file={config}"),
            "cannot use the certificate",
            id="no certificate",
        ),
        pytest.param(("--kubeconfig={config}", "--bind-address=nowhere"), "HOST:PORT", id="no address"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_sentence(kubeconfig, monkeypatch, arguments, sentence):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = CliRunner().invoke(main, ["dashboard", *(each.format(config=kubeconfig) for each in arguments)])
    assert result.exit_code != 0
    assert sentence in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_pod_needs_no_token_to_find_its_cluster(tmp_path):
    from paddlejob.kube.transport.config import in_cluster_config

    (tmp_path / "ca.crt").write_text("certificate")
    env = {**os.environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    config = in_cluster_config(env, tmp_path, with_token=False)
    assert (config.server, config.certificate_authority) == ("https://10.0.0.1:443", b"certificate")
    assert repr(config.user) == "User()"
