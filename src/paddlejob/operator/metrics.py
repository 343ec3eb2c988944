"""What Prometheus is told. No series is labelled by job, so that their number stays what it is."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Any

import prometheus_client
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from paddlejob.api.meta import ObjectKey
from paddlejob.api.v1 import Phase
from paddlejob.kube.client import RequestRecord
from paddlejob.kube.informer import Informer
from paddlejob.kube.workqueue import WorkQueue
from paddlejob.operator.world import World

REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
START_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


class Metrics:
    """The operator's series, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.passes = prometheus_client.Counter(
            "paddlejob_reconcile", "Passes over jobs by how they ended.", ["result"], registry=self.registry
        )
        self.pass_seconds = prometheus_client.Histogram(
            "paddlejob_reconcile_seconds",
            "Duration of one pass over a job.",
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self.queue_seconds = prometheus_client.Histogram(
            "paddlejob_queue_seconds",
            "Time a job waited in the queue for a worker.",
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self.requests = prometheus_client.Counter(
            "paddlejob_api_requests",
            "Requests to the API server; code 0 is no answer.",
            ["verb", "resource", "code"],
            registry=self.registry,
        )
        self.request_seconds = prometheus_client.Histogram(
            "paddlejob_api_request_seconds",
            "Duration of requests to the API server.",
            ["verb"],
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self.ended = prometheus_client.Counter(
            "paddlejob_jobs_ended", "Jobs that ended, by phase.", ["phase"], registry=self.registry
        )
        self.start_seconds = prometheus_client.Histogram(
            "paddlejob_job_start_seconds",
            "Time from a job's creation until all its pods ran for the first time.",
            buckets=START_BUCKETS,
            registry=self.registry,
        )
        self.leader = prometheus_client.Gauge(
            "paddlejob_leader", "1 while this process works on jobs.", registry=self.registry
        )

    def observe_request(self, record: RequestRecord) -> None:
        """Count one request."""
        self.requests.labels(record.verb, record.resource, str(record.code)).inc()
        self.request_seconds.labels(record.verb).observe(record.seconds)

    def render(self) -> bytes:
        """Return all series in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)


class WorldCollector(Collector):
    """Reads counts from the caches when asked, so that no event has to keep them up to date."""

    def __init__(self, world: World, queue: WorkQueue[ObjectKey]) -> None:
        self._world = world
        self._queue = queue

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges."""
        phases = Tally(job.status.phase or Phase.PENDING for job in self._world.jobs)
        jobs = GaugeMetricFamily("paddlejob_jobs", "Jobs by phase.", labels=["phase"])
        for phase in Phase:
            if phase:
                jobs.add_metric([str(phase)], phases[phase])
        yield jobs
        ages = GaugeMetricFamily(
            "paddlejob_watch_age_seconds", "Time since a watch gave a sign of life.", labels=["resource"]
        )
        cached = GaugeMetricFamily("paddlejob_cached_objects", "Objects in memory.", labels=["resource"])
        watched: dict[str, Informer[Any]] = {each.resource.plural: each for each in self._world.informers}
        for each in self._world.gangs.informers:
            watched[f"{each.resource.plural}.{each.resource.group}"] = each
        for name, informer in watched.items():
            ages.add_metric([name], informer.age_seconds())
            cached.add_metric([name], len(informer.cache))
        yield ages
        yield cached
        depth = GaugeMetricFamily("paddlejob_queue_depth", "Jobs in the queue.", labels=["state"])
        for state, count in (
            ("ready", self._queue.depth),
            ("delayed", self._queue.delayed),
            ("running", self._queue.running),
        ):
            depth.add_metric([state], count)
        yield depth
