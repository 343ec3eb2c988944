"""Writes kubeconfig files."""

from __future__ import annotations

import base64
from pathlib import Path

from devcluster.cache import write_atomically

TEMPLATE = """\
apiVersion: v1
kind: Config
current-context: devcluster
clusters:
- name: devcluster
  cluster:
    server: {url}
    certificate-authority-data: {authority}
contexts:
- name: devcluster
  context:
    cluster: devcluster
    user: {user}
    namespace: {namespace}
users:
- name: {user}
  user:
    token: {token}
"""


def write_kubeconfig(
    path: Path, *, url: str, ca_file: Path, token: str, user: str = "admin", namespace: str = "default"
) -> Path:
    """Write a self-contained kubeconfig that only its owner can read, and give its path."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    text = TEMPLATE.format(url=url, authority=authority, user=user, namespace=namespace, token=token)
    write_atomically(path, text, mode=0o600)
    return path
