from __future__ import annotations

import re

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.client import RequestRecord
from paddlejob.operator.metrics import Metrics
from simkube.build import job
from tests.support.simulated import simulated


def test_requests_are_counted_by_verb_resource_and_code():
    metrics = Metrics()
    metrics.observe_request(RequestRecord("create", "pods", 201, 0.01))
    text = metrics.render().decode()
    assert 'paddlejob_api_requests_total{code="201",resource="pods",verb="create"} 1.0' in text


@simulated
async def test_jobs_watches_and_queue_are_read_when_asked(cluster):
    cluster.submit(job().worker(1))
    await cluster.operate(10)
    text = cluster.controller.metrics.render().decode()
    assert 'paddlejob_jobs{phase="Pending"} 1.0' in text
    assert 'paddlejob_cached_objects{resource="pods"} 1.0' in text
    assert 'paddlejob_watch_age_seconds{resource="paddlejobs"}' in text
    assert 'paddlejob_queue_depth{state="ready"}' in text
    assert 'paddlejob_reconcile_total{result="settled"}' in text


@simulated
async def test_counters_of_components_are_exported_with_help_texts(cluster):
    cluster.submit(job().worker(1))
    await cluster.operate(3)
    text = cluster.controller.metrics.render().decode()
    for line in (
        'paddlejob_watch_lists_total{resource="pods"} 1.0',
        'paddlejob_watch_streams_total{resource="configmaps"} 1.0',
        'paddlejob_watch_callback_errors_total{resource="pods"} 0.0',
        'paddlejob_undecodable_objects{resource="pods"} 0.0',
        "paddlejob_cache_lag_timeouts_total 0.0",
        "paddlejob_events_dropped_total 0.0",
        "paddlejob_reconcile_longest_running_seconds 0.0",
    ):
        assert line in text.splitlines()
    helped = re.findall(r"^# HELP (paddlejob_\S+) \S", text, re.MULTILINE)
    typed = re.findall(r"^# TYPE (paddlejob_\S+)", text, re.MULTILINE)
    assert helped == typed


@simulated
async def test_running_jobs_that_hang_are_counted(cluster):
    for name, phase in {"hangs": "Running", "restarts": "Restarting"}.items():
        cluster.submit(job(name).worker(1).spec(managedBy="example.com/other"))
        status = {"phase": phase, "reason": "Hung"}
        cluster.server.patch(PADDLE_JOBS, "default", name, {"status": status}, subresource="status")
    await cluster.operate(3)
    assert "paddlejob_jobs_hung 1.0" in cluster.controller.metrics.render().decode().splitlines()


@simulated
async def test_progress_is_exported_while_a_job_lives(cluster):
    for name, status in {
        "demo": {"progress": {"step": 7, "loss": "nan", "lostSteps": 3}},
        "silent": {"progress": {"step": 1}},
        "ended": {"phase": "Completed", "progress": {"step": 9}},
    }.items():
        cluster.submit(job(name).worker(1))
        cluster.server.patch(PADDLE_JOBS, "default", name, {"status": status}, subresource="status")
    await cluster.operate(3)
    lines = cluster.controller.metrics.render().decode().splitlines()
    told = sorted(line for line in lines if line.startswith("paddlejob_job_") and "namespace=" in line)
    assert told == [
        'paddlejob_job_loss{job="demo",namespace="default"} NaN',
        'paddlejob_job_lost_steps{job="demo",namespace="default"} 3.0',
        'paddlejob_job_lost_steps{job="silent",namespace="default"} 0.0',
        'paddlejob_job_step{job="demo",namespace="default"} 7.0',
        'paddlejob_job_step{job="silent",namespace="default"} 1.0',
    ]


@simulated
async def test_no_other_series_is_labelled_by_job(cluster):
    cluster.submit(job("a-name-like-no-other").worker(1))
    await cluster.operate(3)
    assert "a-name-like-no-other" not in cluster.controller.metrics.render().decode()
