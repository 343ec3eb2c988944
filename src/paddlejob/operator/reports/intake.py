"""Receives reports while this process is the leader: provides the recorder and authenticates pods."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import msgspec

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.pod_set import attempt_of
from paddlejob.core.recorder import ATTEND_PATH, TRAINJOB_PATH, Recorder, recorder_of
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.decoding import DECODE_ERRORS
from paddlejob.operator.ports import server
from paddlejob.operator.ports.http import Endpoint, Request, Response
from paddlejob.operator.ports.server import Limits
from paddlejob.operator.reports.attendance import MAX_HELD, Supervisors
from paddlejob.operator.reports.certificate import Certificate, CertificateError, shared_certificate
from paddlejob.operator.reports.pod_log import LogReader
from paddlejob.operator.reports.rank_registry import RankRegistry
from paddlejob.operator.reports.tokens import BusyError, PodIdentity, RefusedError, TokenReviewer
from paddlejob.operator.reports.watchdog import RecordEvent, Watchdog
from paddlejob.operator.reports.writer import ProgressWriter
from paddlejob.operator.settings import ReportSettings
from paddlejob.operator.state import ClusterState
from paddlejob.training import report_rate, trainjob
from paddlejob.training.log_lines import Progress, training_progress
from paddlejob.training.reports import Report, read_report
from paddlejob.training.steps import STEPS_PER_SECOND, Origin

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
CHECK_SECONDS = 300.0
"""Interval between two reads of the certificate's Secret."""
PREPARE_SECONDS = 5.0
LIMITS = Limits(connections=256, per_source=32, authenticated=MAX_HELD)
"""All recorders together send 50 reports a second, so few of their connections are open at a time.
Supervisors keep theirs. A TLS connection takes 33 kB with uvloop, and up to 0.3 MB without."""
REPORT_PATH = "/v1/report"


class Answer(msgspec.Struct, frozen=True):
    """An HTTP status and a JSON body."""

    status: int
    body: dict[str, Any]


Admission = Callable[[str, str], Coroutine[Any, Any, PodIdentity | Answer]]
"""Called with a token and a source address; returns the authenticated pod or a refusal."""


class Call(msgspec.Struct, frozen=True):
    """A request of an authenticated pod."""

    sender: PodIdentity
    body: bytes
    placeholders: Mapping[str, str] = {}
    """Values of the placeholders in the path."""
    may_wait: bool = True
    """Whether the answer may wait. Pods that share a source address share few connections."""


Handler = Callable[[Call], Coroutine[Any, Any, Answer]]


_GONE = Answer(401, {"message": "the pod no longer exists"})


class ReportIntake:
    """Serves the reports port: certificate, recorder, tokens and the reports themselves."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        writer: ProgressWriter,
        settings: ReportSettings,
        *,
        now: Callable[[], datetime],
        namespace: str,
        record_event: RecordEvent,
    ) -> None:
        """`namespace` is the namespace of the operator and of the certificate."""
        self._client = client
        self._state = state
        self._writer = writer
        self._settings = settings
        self._namespace = namespace
        self._now = now
        self._reviewer = TokenReviewer(client, is_known=lambda pod: self._sender(pod) is not None, now=now)
        self._registry = RankRegistry()
        self.supervisors = Supervisors(state, LogReader(client), now=now)
        self.watchdog = Watchdog(
            state,
            self._registry,
            record_event,
            settings.hangs,
            straggler_seconds=settings.straggler_seconds,
        )
        self._tried = asyncio.Event()
        self._logged = ""
        self.port = 0

    async def wait_until_prepared(self) -> None:
        """Wait until the recorder is available to pods, a few seconds at most: jobs do not depend on it."""
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                await self._tried.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Accept reports until cancelled; failures are retried, and logged once."""
        self._registry.since = self._now()
        self._state.listeners.append(self.supervisors.wake)
        while True:
            try:
                certificate = await self._certificate()
                context = self._install(certificate)
                routes = {
                    REPORT_PATH: self._report,
                    TRAINJOB_PATH: self._update,
                    ATTEND_PATH: self._attend,
                }
                async with serve(self._settings.address, context, self._admit, routes) as self.port:
                    log.info("accepting reports on port %s for %s", self.port, self._settings.url)
                    self._tried.set()
                    await self._until_changed(certificate)
                log.info("the certificate of the reports port has changed")
                continue
            except (errors.KubeError, CertificateError, OSError) as error:
                self._log_once("not accepting reports", error)
            self._tried.set()
            await asyncio.sleep(RETRY_SECONDS)

    def _log_once(self, prefix: str, error: Exception) -> None:
        if str(error) != self._logged:
            self._logged = str(error)
            log.warning("%s: %s", prefix, error)

    async def _certificate(self) -> Certificate:
        host = urlsplit(self._settings.url).hostname or ""
        return await shared_certificate(self._client, self._namespace, host)

    def _install(self, certificate: Certificate) -> ssl.SSLContext:
        """Provide pods with the recorder and this certificate; return the TLS context of the port."""
        files = {**recorder_files(), "ca.crt": certificate.certificate}
        self._state.recorder = Recorder.of(
            files, self._settings.url, by_default=self._settings.recorder_by_default
        )
        return certificate.server_context()

    async def _until_changed(self, certificate: Certificate) -> None:
        """Wait until the certificate changes; an invalid or missing one is not a change."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                if await self._certificate() != certificate:
                    return
            except (errors.KubeError, CertificateError) as error:
                self._log_once("still using the previous certificate for reports", error)

    async def _report(self, call: Call) -> Answer:
        """Handle one report of a recorder."""
        sender = self._sender(call.sender)
        if sender is None:
            return _GONE
        job, pod = sender
        try:
            report = read_report(call.body, pods=sum(spec.replicas for _, spec in job.spec.roles()))
            wants_stacks = self.watchdog.wants_stacks(job.metadata.key)
            self._take(job, pod, report if wants_stacks else msgspec.structs.replace(report, stacks=""))
        except DECODE_ERRORS as error:
            return Answer(400, {"message": str(error)})
        answer: dict[str, Any] = {"nextSeconds": self._registry.next_seconds(sender[0].metadata.namespace)}
        if wants_stacks and not report.stacks:
            answer["stacks"] = True
        return Answer(200, answer)

    async def _attend(self, call: Call) -> Answer:
        """Hold the request of a supervisor until there is an order."""
        sender = self._sender(call.sender)
        if sender is None:
            return _GONE
        try:
            return Answer(200, await self.supervisors.attend(*sender, call.body, may_wait=call.may_wait))
        except DECODE_ERRORS as error:
            return Answer(400, {"message": str(error)})

    async def _update(self, call: Call) -> Answer:
        """Handle a progress update in Kubeflow's protocol."""
        sender = self._sender(call.sender)
        if sender is None:
            return _GONE
        job, pod = sender
        if job.metadata.key != ObjectKey(call.placeholders["namespace"], call.placeholders["name"]):
            return Answer(403, {"message": f"the pod belongs to PaddleJob {job.metadata.key}"})
        try:
            self._writer.add_update(job, pod, trainjob.parse_update(call.body))
        except DECODE_ERRORS as error:
            return Answer(400, {"message": str(error)})
        return Answer(200, {"nextSeconds": self._registry.next_seconds(job.metadata.namespace)})

    async def _admit(self, token: str, source: str) -> PodIdentity | Answer:
        """Return the pod that a token belongs to, or the response to a pod that may not report now."""
        try:
            identity = await self._reviewer.identify(token, source)
        except RefusedError as error:
            return Answer(401, {"message": str(error)})
        except BusyError:
            return Answer(429, {"nextSeconds": report_rate.next_seconds(self._registry.reporters)})
        if self._sender(identity) is None:
            return _GONE
        if not self._registry.may_report(identity.uid, asyncio.get_running_loop().time()):
            return Answer(429, {"nextSeconds": report_rate.MAX_SECONDS})
        return identity

    def _sender(self, identity: PodIdentity) -> tuple[PaddleJob, Pod] | None:
        """Return the job and the pod of an identity, if the pod exists and its job has the recorder."""
        pod = self._state.pods.get(ObjectKey(identity.namespace, identity.name))
        if pod is None or pod.metadata.uid != identity.uid:
            return None
        job = self._state.job_of(pod)
        return (job, pod) if job is not None and recorder_of(job, self._state.recorder) else None

    def _take(self, job: PaddleJob, pod: Pod, report: Report) -> None:
        key, clock = job.metadata.key, asyncio.get_running_loop().time()
        loss = None if report.loss is None else float(report.loss)
        attempt = self._attempt_of(job, pod, report)
        rank = self._registry.add_report(key, pod, report, clock, attempt=attempt)
        rank.tracker.add(
            Progress(
                step=report.step,
                steps=report.total,
                epoch=report.epoch,
                loss=loss,
                throughput=rank.steps_per_second,
                throughput_unit=STEPS_PER_SECOND,
            ),
            clock,
        )
        reported = training_progress(rank.tracker, clock)
        if reported is not None and report.step and report.rank == self._registry.leader(key):
            reported = msgspec.structs.replace(
                reported,
                phase=report.phase,
                saved_step=report.saved_step or 0,
                processes=report.local_size if report.local_size > 1 else 0,
            )
            origin = Origin(report.resumed, rank.has_restarted) if report.counted else None
            self._writer.add_report(job, attempt, reported, origin, report.startup)

    def _attempt_of(self, job: PaddleJob, pod: Pod, report: Report) -> int:
        """Return the attempt of the process that sent a report; the pod may be older."""
        if report.attempt is None:
            return self._state.process_attempt(job, pod)
        return max(attempt_of(pod), min(report.attempt, job.status.attempt))


def recorder_files() -> dict[str, str]:
    """Return the files of the recorder by path."""
    package = resources.files("paddlejob.recorder")
    modules = (each for place in (package, package / "site") for each in place.iterdir())
    files = {each.name: each.read_text("utf-8") for each in modules if each.name.endswith(".py")}
    return {f"site/{name}" if name == "sitecustomize.py" else name: text for name, text in files.items()}


@asynccontextmanager
async def serve(
    address: str, context: ssl.SSLContext, admit: Admission, routes: Mapping[str, Handler]
) -> AsyncIterator[int]:
    """Serve `host:port` and yield the port. The callbacks run on the loop of the caller. Raises OSError."""
    loop = asyncio.get_running_loop()

    async def respond(handle: Handler, request: Request) -> Response:
        if not request.token:
            return _response(Answer(401, {"message": "a bearer token is required"}))
        sender = await server.call(loop, admit(request.token, request.source))
        if isinstance(sender, Answer):
            return _response(sender)
        may_wait = request.on_authenticated()
        sent = Call(sender, await request.body(), request.placeholders, may_wait)
        answer = await server.call(loop, handle(sent))
        return _response(answer, keep=answer.status in (200, 429))

    handlers = [Endpoint("POST", path, partial(respond, handle)) for path, handle in routes.items()]
    async with server.serve(address, handlers, LIMITS, context=context) as port:
        yield port


def _response(answer: Answer, *, keep: bool = False) -> Response:
    return Response(answer.status, msgspec.json.encode(answer.body), "application/json", keep)
