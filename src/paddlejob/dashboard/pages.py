"""The routes of the dashboard: static files, streams and changes, all through `paddlejob.client`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

import paddlejob
from paddlejob.api.meta import JsonObject
from paddlejob.client import live
from paddlejob.client import manifest as manifests
from paddlejob.client.cluster import Cluster
from paddlejob.client.errors import ClientError, InvalidJobError, NoSuchJobError, sentence
from paddlejob.client.job import Job, Jobs
from paddlejob.client.live import within
from paddlejob.client.local_runs import LocalRuns
from paddlejob.dashboard import sse
from paddlejob.dashboard.guard import SESSION, Handler, add_headers
from paddlejob.dashboard.job_stream import job_stream
from paddlejob.dashboard.rows import STATIC, key_of, record_of, summary_of
from paddlejob.dashboard.session import ALL
from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.kube.errors import ForbiddenError, KubeError, UnauthorizedError
from paddlejob.text import one_line

Check = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]

MAX_BODY_LENGTH = 1 << 20
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
SOURCE = "the manifest"
MAX_PROBLEMS = 50
PROBLEM_LENGTH = 1000


def application(check: Check, *routes: web.AbstractRouteDef) -> web.Application:
    """Return the web application; `check` authenticates each request."""
    app = web.Application(client_max_size=MAX_BODY_LENGTH, middlewares=[_middleware(check)])
    app.on_response_prepare.append(add_headers)
    app.router.add_routes([*_routes(), *routes])
    return app


def _routes() -> list[web.AbstractRouteDef]:
    job = "/api/jobs/{namespace}/{name}"
    return [
        web.get("/", _page),
        web.static("/static", STATIC),
        web.get("/api/about", _about),
        web.get("/api/namespaces", _namespaces),
        web.get("/api/rights/{namespace}", _rights),
        web.get("/api/jobs", _stream),
        web.post("/api/jobs", _submit),
        web.post("/api/validate", _validate),
        web.get("/api/history", _history),
        web.get("/api/history/{namespace}/{name}", _record),
        web.get(f"{job}/stream", _job_stream),
        web.get(f"{job}/manifest", _manifest),
        web.get(f"{job}/environment/{{rank}}", _environment),
        web.get(f"{job}/processes/{{rank}}", _processes),
        web.get(f"{job}/error", _first_error),
        web.post(f"{job}/{{change}}", _change),
    ]


async def _page(_: web.Request) -> web.StreamResponse:
    return web.FileResponse(STATIC / "index.html")


async def _about(request: web.Request) -> web.Response:
    session = request[SESSION]
    return to_json(
        {
            "version": paddlejob.__version__,
            "isLocal": isinstance(session.jobs, LocalRuns),
            "namespace": getattr(session.jobs, "namespace", ""),
            "context": getattr(session.jobs, "context", ""),
            "directory": str(getattr(session.jobs, "runs", "")),
            "scope": session.scope,
            "user": session.user,
        }
    )


async def _namespaces(request: web.Request) -> web.Response:
    """Return the namespaces that can be selected, and whether all can be selected together."""
    jobs = request[SESSION].jobs
    if not isinstance(jobs, Cluster):
        return to_json({"names": [], "all": False})
    names = await live.namespace_names(jobs.client)
    try:
        may_list_all = await live.may_list_all(jobs.client)
    except KubeError:
        # The API server rejects a user who chooses all namespaces without the permission.
        may_list_all = True
    return to_json({"names": names, "all": may_list_all})


async def _rights(request: web.Request) -> web.Response:
    return to_json(sorted(await request[SESSION].jobs.rights(_name_in_path(request, "namespace"))))


async def _stream(request: web.Request) -> web.StreamResponse:
    session = request[SESSION]
    with session.count_stream():
        return await sse.respond(request, session.stream(_scope(request), _last_id(request)), session.over)


async def _job_stream(request: web.Request) -> web.StreamResponse:
    session = request[SESSION]
    with session.count_stream():
        job = await _job(request)
        # The directory of a local run has the logs and events of all attempts.
        records = None if isinstance(session.jobs, LocalRuns) else _jobs(request)
        stream = job_stream(job, with_logs="logs" in request.query, records=records)
        return await sse.respond(request, stream, session.over)


async def _history(request: web.Request) -> web.Response:
    scope = _scope(request)
    found = await within(request[SESSION].jobs, scope).history(all_namespaces=scope == ALL)
    return to_json([summary_of(each) for each in found])


async def _record(request: web.Request) -> web.Response:
    return to_json(record_of(await _jobs(request).record(_name_in_path(request, "name"))))


async def _manifest(request: web.Request) -> web.Response:
    return to_json({"text": await manifest_text(await _job(request))})


async def _environment(request: web.Request) -> web.Response:
    found = await (await _job(request)).environment(request.match_info["rank"])
    return to_json(dict(sorted(found.items())))


async def _processes(request: web.Request) -> web.Response:
    """Return the processes of a pod. They are read on request, since this takes a command in the pod."""
    return to_json(await (await _job(request)).processes(request.match_info["rank"]))


async def _first_error(request: web.Request) -> web.Response:
    return to_json(await (await _job(request)).first_error())


async def _change(request: web.Request) -> web.Response:
    change, body = request.match_info["change"], await read_json(request)
    # Complete the change even if the page is closed.
    return to_json(await asyncio.shield(perform_change(await _job(request), change, body)))


async def _validate(request: web.Request) -> web.Response:
    return to_json({"problems": (await _submission(request)).problems})


async def _submit(request: web.Request) -> web.Response:
    jobs = within(request[SESSION].jobs, _scope(request) or getattr(request[SESSION].jobs, "namespace", ""))
    return to_json(await asyncio.shield(submit_all(jobs, await _submission(request))))


async def _submission(request: web.Request) -> Submission:
    async with request[SESSION].parse_slot():
        text = str((await read_json(request)).get("text", ""))
        return await asyncio.to_thread(read_submission, text)


def _scope(request: web.Request) -> str:
    """Return the namespace of a page, ALL for all namespaces, by default the first scope of the session."""
    namespace = request.query.get("namespace", request[SESSION].scope)
    return namespace if namespace == ALL else _check_name("namespace", namespace)


def _jobs(request: web.Request) -> Jobs:
    return within(request[SESSION].jobs, _name_in_path(request, "namespace"))


async def _job(request: web.Request) -> Job:
    return await _jobs(request).get(_name_in_path(request, "name"))


def _name_in_path(request: web.Request, field: str) -> str:
    return _check_name(field, request.match_info[field])


def _check_name(field: str, value: str) -> str:
    """Return a name that can be part of a URL path. Raises ClientError."""
    if not _OBJECT_NAME.fullmatch(value):
        raise ClientError(f"{field}: Invalid value: {value!r}: must be the name of a Kubernetes object")
    return value


def _middleware(check: Check) -> Any:
    """Return the middleware that checks requests and turns errors into responses."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_text(request):
            return web.Response(status=400, text="The headers of the request are not UTF-8.\n")
        try:
            answer: web.StreamResponse = await check(request, handler)
        except web.HTTPException as error:
            return web.Response(status=error.status, text=f"{error.reason}\n")
        except (ClientError, KubeError) as error:
            payload: JsonObject = {"error": sentence(error)}
            if isinstance(error, InvalidJobError):
                payload["problems"] = error.problems
            return to_json(payload, _status_of(error))
        return answer

    return middleware


def _is_text(request: web.Request) -> bool:
    """Return whether all headers are UTF-8; aiohttp accepts bytes that cannot be encoded again."""
    try:
        for _, value in request.raw_headers:
            value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _status_of(error: ClientError | KubeError) -> int:
    match error:
        case NoSuchJobError():
            return 404
        case UnauthorizedError():
            return 401
        case ForbiddenError():
            return 403
        case ClientError():
            return 422
    return 502


def _last_id(request: web.Request) -> str:
    """Return the id of the last event of a page. Pages that open a new stream pass it in the query."""
    return request.headers.get("Last-Event-ID") or request.query.get("last", "")


async def read_json(request: web.Request) -> JsonObject:
    """Return the JSON body of a request. Raises ClientError."""
    found: Any = None
    with contextlib.suppress(*DECODE_ERRORS):
        found = msgspec.json.decode(await request.read() or b"{}")
    if not isinstance(found, dict):
        raise ClientError("the request body is not a JSON object")
    return found


def to_json(value: Any, status: int = 200) -> web.Response:
    """Return a JSON response that browsers do not cache, since it depends on the user."""
    headers = {"Cache-Control": "no-store", "Content-Type": "application/json"}
    return web.Response(body=msgspec.json.encode(value), status=status, headers=headers)


async def perform_change(job: Job, name: str, body: JsonObject) -> JsonObject:
    """Perform an action; return a message, and the key of a new job. Raises ClientError."""
    # Pages share the job object; an action must not change it.
    job = copy.copy(job)
    match name:
        case "suspend" | "resume" | "stop" | "delete":
            return {"message": await getattr(job, name)()}
        case "retry":
            return {"message": "submitted again", "key": key_of(await job.retry())}
        case "scale":
            workers = body.get("workers")
            if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
                raise ClientError(f"workers: Invalid value: {workers}: must be 0 or greater")
            return {"message": await job.scale(workers)}
    raise ClientError(f"unknown action {name!r}")


class Submission(NamedTuple):
    """The jobs and other objects of a YAML text, and its problems."""

    jobs: list[JsonObject]
    others: list[JsonObject]
    problems: list[str]


def read_submission(text: str) -> Submission:
    """Parse and validate a YAML text; at most MAX_PROBLEMS problems are returned."""
    try:
        jobs, others = manifests.read(text, SOURCE)
        found = [problem for job in jobs for problem in manifests.problems(job)]
        for each in others:
            manifests.resource_beside(each)
    except InvalidJobError as error:
        return Submission([], [], _first(list(error.problems)))
    except ClientError as error:
        return Submission([], [], [str(error)])
    return Submission(jobs, others, _first(found))


def _first(problems: list[str]) -> list[str]:
    kept = [one_line(each, PROBLEM_LENGTH) for each in problems[:MAX_PROBLEMS]]
    left = len(problems) - len(kept)
    return [*kept, f"and {left} more problems"] if left else kept


async def submit_all(jobs: Jobs, submission: Submission) -> JsonObject:
    """Submit all jobs of a YAML text; return their keys and notes for the user. Raises ClientError."""
    if submission.problems:
        raise InvalidJobError(*submission.problems)
    notes = await jobs.submit_beside(submission.others)
    return {"keys": [key_of(await jobs.submit(each)) for each in submission.jobs], "notes": notes}


async def manifest_text(job: Job) -> str:
    """Return the manifest of a job as YAML."""
    return manifests.dump(await copy.copy(job).manifests())
