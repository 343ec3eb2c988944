"""Prometheus metrics. Only the progress of live jobs is labelled by job, and is removed with them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from paddlejob.api.meta import ObjectKey
from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase, Recovery, TrainingProgress
from paddlejob.kube.client import RequestRecord
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.events import EventRecorder
from paddlejob.kube.informer import Informer
from paddlejob.kube.workqueue import WorkQueue
from paddlejob.operator.state import ClusterState

REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
RECOVERY_BUCKETS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
START_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """The metrics of the operator and their registry."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        counter = partial(prometheus_client.Counter, registry=self.registry)
        histogram = partial(prometheus_client.Histogram, registry=self.registry, buckets=REQUEST_BUCKETS)
        self.reconciles = counter("paddlejob_reconcile", "Reconciliations by result.", ["result"])
        self.reconcile_seconds = histogram("paddlejob_reconcile_seconds", "Duration of one reconciliation.")
        self.queue_seconds = histogram(
            "paddlejob_queue_seconds", "Time that a job waited in the work queue for a worker."
        )
        self.requests = counter(
            "paddlejob_api_requests",
            "Requests to the API server; code 0 stands for no response.",
            ["verb", "resource", "code"],
        )
        self.request_seconds = histogram(
            "paddlejob_api_request_seconds", "Duration of requests to the API server.", ["verb"]
        )
        self.ended = counter("paddlejob_jobs_ended", "Jobs that ended, by their last phase.", ["phase"])
        self.start_seconds = histogram(
            "paddlejob_job_start_seconds",
            "Time from the creation of a job until all its pods were running for the first time.",
            buckets=START_BUCKETS,
        )
        self.recovery_seconds = histogram(
            "paddlejob_recovery_seconds",
            "Time from a failure to the next new step, by what the restart did with the pods.",
            ["kind"],
            buckets=RECOVERY_BUCKETS,
        )
        self.leader = prometheus_client.Gauge(
            "paddlejob_leader", "1 while this process is the leader.", registry=self.registry
        )
        # Cached because labels() is called for every request.
        self._count_of = cache(self.requests.labels)
        self._seconds_of = cache(self.request_seconds.labels)

    def observe_request(self, record: RequestRecord) -> None:
        """Count one request."""
        self._count_of(record.verb, record.resource, record.code).inc()
        self._seconds_of(record.verb).observe(record.seconds)

    def observe_recovery(self, recovery: Recovery) -> None:
        """Add the total of a recovery."""
        if recovery.total_seconds is not None:
            self.recovery_seconds.labels(recovery.kind).observe(recovery.total_seconds)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.registry)


class StateCollector(Collector):
    """Reads the counters of the operator's components on each scrape."""

    def __init__(
        self,
        state: ClusterState,
        queue: WorkQueue[ObjectKey],
        consistency: Consistency,
        events: EventRecorder,
    ) -> None:
        self._state = state
        self._queue = queue
        self._consistency = consistency
        self._events = events

    def collect(self) -> Iterable[Metric]:
        """Yield the series."""
        yield self._jobs()
        yield self._hung()
        yield from self._progress()
        yield from self._watches()
        yield from self._work()

    def _jobs(self) -> Metric:
        phases = Tally(job.status.phase or Phase.PENDING for job in self._state.jobs)
        jobs = GaugeMetricFamily("paddlejob_jobs", "Jobs by phase.", labels=["phase"])
        for phase in Phase:
            if phase:
                jobs.add_metric([str(phase)], phases[phase])
        return jobs

    def _hung(self) -> Metric:
        hung = sum(
            job.status.phase is Phase.RUNNING and job.status.reason == Reason.HUNG for job in self._state.jobs
        )
        return GaugeMetricFamily("paddlejob_jobs_hung", "Running jobs that make no progress.", value=hung)

    def _progress(self) -> Iterable[Metric]:
        """Yield the progress of unfinished jobs; series of finished jobs would never change."""
        reported = [
            ([job.metadata.namespace, job.name], job.status.progress)
            for job in self._state.jobs
            if job.status.progress is not None and not job.status.phase.is_terminal
        ]
        for name, text, read in _PROGRESS_SERIES:
            metric = GaugeMetricFamily(name, text, labels=["namespace", "job"])
            for labels, progress in reported:
                if (value := read(progress)) is not None:
                    metric.add_metric(labels, value)
            yield metric

    def _watches(self) -> Iterable[Metric]:
        watched: dict[str, Informer[Any]] = {each.resource.plural: each for each in self._state.informers}
        for informer in self._state.gangs.informers:
            watched[f"{informer.resource.plural}.{informer.resource.group}"] = informer
        for family, series in ((GaugeMetricFamily, _WATCH_GAUGES), (CounterMetricFamily, _WATCH_COUNTERS)):
            for name, text, read in series:
                metric = family(name, text, labels=["resource"])
                for resource, informer in watched.items():
                    metric.add_metric([resource], read(informer))
                yield metric

    def _work(self) -> Iterable[Metric]:
        depth = GaugeMetricFamily("paddlejob_queue_depth", "Jobs in the work queue.", labels=["state"])
        for state, count in (
            ("ready", self._queue.depth),
            ("delayed", self._queue.delayed),
            ("running", self._queue.running),
        ):
            depth.add_metric([state], count)
        yield depth
        yield GaugeMetricFamily(
            "paddlejob_reconcile_longest_running_seconds",
            "Age of the oldest reconciliation in progress.",
            value=self._queue.longest_running_seconds(),
        )
        yield CounterMetricFamily(
            "paddlejob_cache_lag_timeouts",
            "Reconciliations that stopped waiting for the caches to show the job's last writes.",
            value=self._consistency.expired,
        )
        yield CounterMetricFamily(
            "paddlejob_events_dropped",
            "Kubernetes events that were never written.",
            value=self._events.dropped,
        )


def _loss(progress: TrainingProgress) -> float | None:
    try:
        return float(progress.loss)
    except ValueError:
        return None


_PROGRESS_SERIES: tuple[tuple[str, str, Callable[[TrainingProgress], float | None]], ...] = (
    ("paddlejob_job_step", "Furthest step of a live job.", lambda progress: progress.step),
    ("paddlejob_job_loss", "Latest loss of a live job; may be NaN or Inf.", _loss),
    (
        "paddlejob_job_lost_steps",
        "Steps lost to restarts.",
        lambda progress: progress.lost_steps,
    ),
)


_WATCH_GAUGES: tuple[tuple[str, str, Callable[[Informer[Any]], float]], ...] = (
    ("paddlejob_watch_age_seconds", "Time since the last message of a watch.", Informer.age_seconds),
    ("paddlejob_cached_objects", "Objects in the cache.", lambda informer: len(informer.cache)),
    (
        "paddlejob_undecodable_objects",
        "Objects left out of the cache because they do not fit their type.",
        lambda informer: informer.undecodable,
    ),
)
_WATCH_COUNTERS: tuple[tuple[str, str, Callable[[Informer[Any]], float]], ...] = (
    ("paddlejob_watch_lists", "Complete lists received.", lambda informer: informer.lists),
    ("paddlejob_watch_streams", "Watch requests opened.", lambda informer: informer.streams),
    (
        "paddlejob_watch_callback_errors",
        "Changes whose handler failed.",
        lambda informer: informer.callback_errors,
    ),
)
