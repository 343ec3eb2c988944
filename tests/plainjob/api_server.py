"""A real HTTPS server that answers the two requests of `paddlejob start` as an API server would."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

CERTIFICATES = Path(__file__).parents[1] / "kube" / "data"
TOKEN = "token-of-the-service-account"


class ApiServer:
    """Pods and Jobs by namespace; `refusals` are answered first, one for each request."""

    def __init__(self) -> None:
        self.pods = []
        self.job = {"metadata": {"name": "job"}, "spec": {"parallelism": 3, "completions": 3}}
        self.refusals = []
        self.requests = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.path_qs)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.status(401)
        if self.refusals:
            return self.status(self.refusals.pop(0))
        if request.path == "/api/v1/namespaces/default/pods":
            return self.json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.pods})
        if request.path == "/apis/batch/v1/namespaces/default/jobs/job" and self.job is not None:
            return self.json(self.job)
        return self.status(404)

    def status(self, code: int) -> web.Response:
        return self.json({"kind": "Status", "code": code, "message": f"refused with {code}"}, code)

    def json(self, body, code: int = 200) -> web.Response:
        return web.Response(body=msgspec.json.encode(body), status=code, content_type="application/json")


@asynccontextmanager
async def api_server():
    server = ApiServer()
    app = web.Application()
    app.router.add_route("GET", "/{path:.*}", server.answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.crt", CERTIFICATES / "server.key")
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def service_account(directory: Path, authority: str = "ca.crt") -> Path:
    """Write what the kubelet mounts into every pod."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "token").write_text(TOKEN)
    (directory / "ca.crt").write_bytes((CERTIFICATES / authority).read_bytes())
    (directory / "namespace").write_text("default")
    return directory


def pod_environment(server: ApiServer) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
