"""A namespace with an operator that takes reports, and what pods report with: on a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from behaviour.stage import SETTINGS, Stage
from devcluster import Cluster
from paddlejob.api import names
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, SECRETS
from paddlejob.operator.settings import OperatorSettings, ReportSettings
from paddlejob.training.hangs import HangLimits
from simkube.operator import Operator


class Reporting(Stage):
    """A namespace with an operator that takes reports on a port of this machine."""

    def __init__(self, client: Client, namespace: str, cluster: Cluster, directory: Path) -> None:
        super().__init__(client, namespace)
        self.cluster = cluster
        self.directory = directory
        self.home = namespace
        """The operator's own namespace."""
        self.url = f"https://127.0.0.1:{free_port()}"
        self.hangs = HangLimits()

    def operator(self) -> Operator:
        reports = ReportSettings(self.url, self.url.removeprefix("https://"), hangs=self.hangs)
        settings = OperatorSettings(
            namespace=self.namespace, reports=reports, history=self.history, jobs=SETTINGS
        )
        return Operator(self.operator_client, settings, rng=self.rng, namespace=self.home)

    async def token(self, pod: str = "", *, audience: str = names.RECORDER) -> str:
        """Return a token as the kubelet asks for it, of the namespace's own account."""
        spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
        if pod:
            uid = (await self.pod(pod))["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default/token"
        answer = await asyncio.to_thread(self.cluster.request, "POST", path, {"spec": spec})
        return str(answer["status"]["token"])

    async def mount(self, pod: str) -> Path:
        """Write what the kubelet would mount into a pod, and return where."""
        manifest = await self.pod(pod)
        [volume] = [each for each in manifest["spec"]["volumes"] if each["name"] == names.RECORDER]
        code, token = volume["projected"]["sources"]
        data = (await self.client.get(CONFIG_MAPS, self.namespace, code["configMap"]["name"]))["data"]
        place = self.directory / pod
        for item in code["configMap"]["items"]:
            file = place / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(data[item["key"]])
        asked = token["serviceAccountToken"]
        (place / asked["path"]).write_text(await self.token(pod, audience=asked["audience"]))
        return place

    async def environment(self, pod: str, place: Path) -> dict[str, str]:
        """Return the variables of a pod's training container, with what is mounted at another place."""
        [container, *_] = (await self.pod(pod))["spec"]["containers"]
        env = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        return {name: value.replace(names.RECORDER_MOUNT, str(place)) for name, value in env.items()}

    async def train(self, pod: str, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program with the environment of a pod, in an interpreter of its own."""
        place = await self.mount(pod)
        env = await self.environment(pod, place)
        command = [sys.executable, "-c", program]
        return await asyncio.to_thread(
            subprocess.run, command, env=env, cwd=place, capture_output=True, text=True, check=False
        )

    async def post(self, token: str, body: bytes = b'{"step": 1}', *, path: str = "/v1/report") -> int:
        """Return the status that a report is answered with, by a server that proves to be the operator."""
        authority = (await self.client.get(SECRETS, self.home, "paddlejob-reports"))["data"]["tls.crt"]
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = Request(self.url + path, body, headers)

        def send() -> int:
            try:
                with urlopen(request, context=context, timeout=30) as answer:
                    assert json.loads(answer.read())["nextSeconds"] > 0
                    return int(answer.status)
            except HTTPError as error:
                error.close()
                return error.code

        return await asyncio.to_thread(send)

    async def progress(self) -> dict[str, Any]:
        return (await self.status()).get("progress") or {}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])
