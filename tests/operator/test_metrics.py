from __future__ import annotations

from paddlejob.kube.client import RequestRecord
from paddlejob.operator.metrics import Metrics
from paddlejob.testing.build import job
from tests.operator.small_cluster import on_a_cluster


def test_requests_are_counted_by_verb_resource_and_code():
    metrics = Metrics()
    metrics.observe_request(RequestRecord("create", "pods", 201, 0.01))
    text = metrics.render().decode()
    assert 'paddlejob_api_requests_total{code="201",resource="pods",verb="create"} 1.0' in text


def test_jobs_watches_and_queue_are_read_when_asked():
    async def act(cluster) -> None:
        await cluster.submit(job().worker(1))
        await cluster.operate(3)
        text = cluster.controller.metrics.render().decode()
        assert 'paddlejob_jobs{phase="Pending"} 1.0' in text
        assert 'paddlejob_cached_objects{resource="pods"} 1.0' in text
        assert 'paddlejob_watch_age_seconds{resource="paddlejobs"}' in text
        assert 'paddlejob_queue_depth{state="ready"}' in text
        assert 'paddlejob_reconcile_total{result="settled"}' in text

    on_a_cluster(act)


def test_no_series_is_labelled_by_job():
    async def act(cluster) -> None:
        await cluster.submit(job("a-name-like-no-other").worker(1))
        await cluster.operate(3)
        assert "a-name-like-no-other" not in cluster.controller.metrics.render().decode()

    on_a_cluster(act)
