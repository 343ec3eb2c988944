"""Builds job files; JSON is YAML too."""

from __future__ import annotations

import json
from typing import Any

from paddlejob.api import names


def container(script: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a shell script."""
    return {"name": "main", "image": "some/image:v1", "command": ["sh", "-c", script], **fields}


def role(replicas: int, script: str = "true", *, containers: Any = None, **pod_spec: Any) -> dict[str, Any]:
    """Return a role of the job."""
    spec = {"containers": containers or [container(script)], **pod_spec}
    return {"replicas": replicas, "template": {"spec": spec}}


def job(name: str = "job", **spec: Any) -> dict[str, Any]:
    """Return a job; two workers that do nothing, unless said otherwise."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"worker": role(2), **spec},
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def text(*documents: dict[str, Any]) -> str:
    """Return a file of these documents."""
    return "\n---\n".join(json.dumps(document) for document in documents)


LAUNCHER = """
mkdir -p "$PADDLE_LOG_DIR"
for n in 0 1; do
  echo "hello from $n of $PADDLE_TRAINER_ID" >"$PADDLE_LOG_DIR/workerlog.$n"
  echo "PADDLE_TRAINER_ID=$((2 * PADDLE_TRAINER_ID + n))" >"$PADDLE_LOG_DIR/envlog.$n"
done
echo "step 3/10 loss 0.5"
"""
"""Writes files as Paddle's launcher does for two processes."""
