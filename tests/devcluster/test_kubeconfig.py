from __future__ import annotations

import base64

import pytest
import yaml

from devcluster.control_plane.kubeconfig import write_kubeconfig


@pytest.fixture
def written(tmp_path):
    authority = tmp_path / "ca.crt"
    authority.write_text("CERTIFICATE")
    url, user = "https://127.0.0.1:6443", "system:kube-scheduler"
    return write_kubeconfig(
        tmp_path / "kubeconfig", url=url, ca_file=authority, token="s3cret", user=user, namespace="team"
    )


def test_the_current_context_leads_to_server_authority_and_token(written):
    config = yaml.safe_load(written.read_text())
    (context,) = [
        entry["context"] for entry in config["contexts"] if entry["name"] == config["current-context"]
    ]
    (cluster,) = [entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"]]
    (user,) = [entry["user"] for entry in config["users"] if entry["name"] == context["user"]]
    assert cluster["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"CERTIFICATE"
    assert (user, context["namespace"]) == ({"token": "s3cret"}, "team")


def test_only_its_owner_can_read_it(written):
    assert written.stat().st_mode & 0o777 == 0o600
