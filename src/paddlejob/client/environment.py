"""The environment of a container on a cluster, resolved from its pod as the kubelet resolves it."""

from __future__ import annotations

import base64

from paddlejob.api.meta import JsonObject
from paddlejob.client.errors import ClientError
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SECRETS
from paddlejob.kubelet import environment as kubelet
from paddlejob.kubelet.environment import CONFIG_MAP, Contents, Source, Sources


async def environment(client: Client, namespace: str, pod: str, container: str) -> dict[str, str]:
    """Return the variables that the manifest and the job give a container, without those of its image.

    Raises ClientError while a ConfigMap that it needs does not exist.
    """
    body = await client.get(PODS, namespace, pod)
    containers: list[JsonObject] = body["spec"]["containers"]
    manifest = next((each for each in containers if each["name"] == container), containers[0])
    read = {source: await _contents(client, namespace, source) for source in kubelet.references(manifest)}
    try:
        return kubelet.resolve(manifest, Sources(body, read.get))
    except kubelet.ConfigError as error:
        raise ClientError(f"{pod} has no environment yet: {error}") from error


async def _contents(client: Client, namespace: str, source: Source) -> Contents | None:
    resource = CONFIG_MAPS if source.kind == CONFIG_MAP else SECRETS
    try:
        body = await client.get(resource, namespace, source.name)
    except errors.NotFoundError:
        return None
    plain: dict[str, str] = body.get("data") or {}
    if resource is SECRETS:
        return {key: base64.b64decode(value) for key, value in plain.items()}
    return {key: value.encode() for key, value in plain.items()}
