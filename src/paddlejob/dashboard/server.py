"""The HTTP server: pages, streams and changes, all through `paddlejob.client`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

import paddlejob
from paddlejob.api.meta import JsonObject
from paddlejob.client.errors import ClientError, InvalidJobError, NoSuchJobError, sentence
from paddlejob.client.job import Job, Jobs
from paddlejob.client.live import within
from paddlejob.client.local_runs import LocalRuns
from paddlejob.dashboard import changes, sse
from paddlejob.dashboard.guard import Guard, Handler, add_headers
from paddlejob.dashboard.hub import Hub
from paddlejob.dashboard.job_stream import job_stream
from paddlejob.dashboard.rows import record_of, summary_of
from paddlejob.kube.errors import ForbiddenError, KubeError, UnauthorizedError

STATIC = Path(__file__).parent / "static"
LONGEST_BODY = 1 << 20
STOP_SECONDS = 0.2


class Dashboard:
    """Serves jobs to the one user who has its link."""

    def __init__(self, jobs: Jobs, *, all_namespaces: bool = False) -> None:
        self._jobs = jobs
        self._all_namespaces = all_namespaces
        self._hub = Hub(jobs, all_namespaces=all_namespaces)
        self._watching: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None
        self._guard: Guard | None = None

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._hub.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.wait({self._watching})
        if self._runner is not None:
            await self._runner.cleanup()

    async def until_stopped(self) -> None:
        """Wait as long as there is something to show. Raises what ended that."""
        assert self._watching is not None
        await self._watching

    async def serve(self, port: int = 0, hosts: Iterable[str] = ()) -> str:
        """Listen on 127.0.0.1 and return the link that works once. Raises ClientError."""
        app = web.Application(client_max_size=LONGEST_BODY, middlewares=[_in_words(self._check)])
        app.on_response_prepare.append(add_headers)
        app.router.add_routes(self._routes())
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_SECONDS
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", port).start()
        except OSError as error:
            raise ClientError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
        actual: int = self._runner.addresses[0][1]
        self._guard = Guard(actual, hosts)
        return f"http://127.0.0.1:{actual}/{self._guard.query}"

    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._guard is not None
        return await self._guard.check(request, handler)

    def _routes(self) -> list[web.AbstractRouteDef]:
        job = "/api/jobs/{namespace}/{name}"
        return [
            web.get("/", self._page),
            web.static("/static", STATIC),
            web.get("/api/about", self._about),
            web.get("/api/rights/{namespace}", self._rights),
            web.get("/api/jobs", self._stream),
            web.post("/api/jobs", self._submit),
            web.post("/api/validate", self._validate),
            web.get("/api/history", self._history),
            web.get("/api/history/{namespace}/{name}", self._record),
            web.get(f"{job}/stream", self._job_stream),
            web.get(f"{job}/manifest", self._manifest),
            web.get(f"{job}/environment/{{rank}}", self._environment),
            web.get(f"{job}/error", self._first_error),
            web.post(f"{job}/{{change}}", self._change),
        ]

    async def _page(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _about(self, _: web.Request) -> web.Response:
        return _json(
            {
                "version": paddlejob.__version__,
                "isLocal": isinstance(self._jobs, LocalRuns),
                "namespace": getattr(self._jobs, "namespace", ""),
                "context": getattr(self._jobs, "context", ""),
                "directory": str(getattr(self._jobs, "runs", "")),
                "allNamespaces": self._all_namespaces,
            }
        )

    async def _rights(self, request: web.Request) -> web.Response:
        return _json(sorted(await self._jobs.rights(request.match_info["namespace"])))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await sse.respond(request, self._hub.stream(_last_id(request)))

    async def _job_stream(self, request: web.Request) -> web.StreamResponse:
        job = await self._job(request)
        # The directory of a local run has its logs and events from the first attempt on.
        records = None if isinstance(self._jobs, LocalRuns) else within(self._jobs, job.namespace)
        stream = job_stream(job, with_logs="logs" in request.query, records=records)
        return await sse.respond(request, stream)

    async def _history(self, _: web.Request) -> web.Response:
        found = await self._jobs.history(all_namespaces=self._all_namespaces)
        return _json([summary_of(each) for each in found])

    async def _record(self, request: web.Request) -> web.Response:
        jobs = within(self._jobs, request.match_info["namespace"])
        return _json(record_of(await jobs.record(request.match_info["name"])))

    async def _manifest(self, request: web.Request) -> web.Response:
        return _json({"text": await changes.manifest_text(await self._job(request))})

    async def _environment(self, request: web.Request) -> web.Response:
        found = await (await self._job(request)).environment(request.match_info["rank"])
        return _json(dict(sorted(found.items())))

    async def _first_error(self, request: web.Request) -> web.Response:
        return _json(await (await self._job(request)).first_error())

    async def _change(self, request: web.Request) -> web.Response:
        change, body = request.match_info["change"], await _body(request)
        # Whoever closes the page in the middle of a change still gets all of it.
        told = await asyncio.shield(changes.change(await self._job(request), change, body))
        if "key" in told:
            # The page of the new job is opened next.
            await self._hub.seen(told["key"])
        return _json(told)

    async def _validate(self, request: web.Request) -> web.Response:
        text = str((await _body(request)).get("text", ""))
        return _json({"problems": await asyncio.to_thread(changes.problems, text)})

    async def _submit(self, request: web.Request) -> web.Response:
        text = str((await _body(request)).get("text", ""))
        told = await asyncio.shield(changes.submit(self._jobs, text))
        for key in told["keys"]:
            await self._hub.seen(key)
        return _json(told)

    async def _job(self, request: web.Request) -> Job:
        return await self._hub.job(request.match_info["namespace"], request.match_info["name"])


def _in_words(check: Any) -> Any:
    """Return the middleware that checks requests and turns errors into sentences."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer: web.StreamResponse = await check(request, handler)
        except web.HTTPException as error:
            return web.Response(status=error.status, text=f"{error.reason}\n")
        except (ClientError, KubeError) as error:
            told: JsonObject = {"error": sentence(error)}
            if isinstance(error, InvalidJobError):
                told["problems"] = error.problems
            return _json(told, _status_of(error))
        return answer

    return middleware


def _status_of(error: ClientError | KubeError) -> int:
    match error:
        case NoSuchJobError():
            return 404
        case ForbiddenError() | UnauthorizedError():
            return 403
        case ClientError():
            return 422
    return 502


def _last_id(request: web.Request) -> str:
    """Return the last event that a page saw; one that reconnects by itself says it in the query."""
    return request.headers.get("Last-Event-ID") or request.query.get("last", "")


async def _body(request: web.Request) -> JsonObject:
    found: Any = None
    with contextlib.suppress(msgspec.DecodeError):
        found = msgspec.json.decode(await request.read() or b"{}")
    if not isinstance(found, dict):
        raise ClientError("the body of the request is not a JSON object")
    return found


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
