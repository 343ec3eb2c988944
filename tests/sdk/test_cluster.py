"""Jobs on a cluster: the same object, in memory and on a real API server."""

from __future__ import annotations

import pytest
import yaml

from paddlejob import Job, JobError, JobFailed, JobNotFoundError, train
from paddlejob.history.record import AttemptRecord, RankEnd, Record, Summary, manifest
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.sdk.background import BACKGROUND
from simkube.kubelet.outcomes import Exit, Unschedulable
from tests.support.waiting import eventually


def fit() -> None:
    print("step 1/2 loss 0.5")


def options(cluster, **more):
    return {"where": "cluster", "namespace": cluster.namespace, **more}


def stored(cluster, resource, name):
    return BACKGROUND.call(cluster.stage.client.get, resource, cluster.namespace, name)


def test_a_job_is_trained_awaited_and_deleted(cluster):
    cluster.stage.fates.set("demo-worker-0", Exit(0, 1))
    job = train(fit, name="demo", **options(cluster))
    assert job.wait(60).status().phase == "Completed"
    assert repr(job) == "demo on cluster: Completed: the worker succeeded"
    assert Job.get("demo", **options(cluster)).name == "demo"
    assert [each.name for each in Job.list(**options(cluster))] == ["demo"]
    assert job.delete() == "deleted"
    eventually(lambda: not BACKGROUND.call(cluster.stage.names, PODS))
    with pytest.raises(JobNotFoundError, match="was deleted"):
        job.status()


def test_what_a_program_ships_is_mounted_and_owned_by_its_job(cluster, laptop):
    (laptop / "src").mkdir()
    (laptop / "src" / "model.py").write_text("x = 1\n")
    job = train(fit, files=["src"], workers=2, resources={"cpu": 2, "memory": "1Gi"}, **options(cluster))
    assert job.name.startswith("fit-")
    body = BACKGROUND.call(cluster.stage.job, job.name)
    pod = body["spec"]["worker"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]] == [
        "/workspace/fit.py",
        "/workspace/src",
    ]
    files = stored(cluster, CONFIG_MAPS, pod["volumes"][0]["configMap"]["name"])
    assert files["data"]["src.model.py"] == "x = 1\n"
    assert files["metadata"]["ownerReferences"][0]["name"] == job.name
    job.delete()


def test_what_to_yaml_prints_is_accepted_again(cluster, laptop):
    job = train(fit, name="demo", labels={"team": "x"}, **options(cluster))
    text = job.to_yaml()
    assert text.startswith("apiVersion: v1\nkind: ConfigMap\n")
    config_map, manifest = yaml.safe_load_all(text)
    assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert manifest["metadata"] == {"name": "demo", "namespace": cluster.namespace, "labels": {"team": "x"}}
    job.delete()
    BACKGROUND.call(cluster.stage.gone)
    (laptop / "again.yaml").write_text(text)
    again = Job.from_yaml("again.yaml", **options(cluster))
    assert list(yaml.safe_load_all(again.to_yaml())) == [config_map, manifest]
    assert [each.name for each in Job.list(selector="team=x", **options(cluster))] == ["demo"]


def test_a_name_that_is_taken_or_unknown_is_said_in_one_sentence(cluster):
    train(fit, name="demo", **options(cluster))
    with pytest.raises(JobError, match=r"job demo already exists; choose another name=, or delete it"):
        train(fit, name="demo", **options(cluster))
    with pytest.raises(JobNotFoundError, match=r"no PaddleJob dem in .*; did you mean demo\?"):
        Job.get("dem", **options(cluster))


INVALID = (
    ({"workers": 0}, r"spec\.worker\.replicas: Invalid value: 0"),
    ({"spec": {"backofLimit": 1}}, r"spec\.backofLimit: Unknown field; did you mean backoffLimit\?"),
)


def test_an_invalid_job_is_refused_before_anything_is_created(cluster, laptop):
    for given, sentence in INVALID:
        with pytest.raises(JobError, match=sentence):
            train(fit, **{**options(cluster), **given})
    (laptop / "job.yaml").write_text(
        yaml.safe_dump({"kind": "PaddleJob", "metadata": {"name": "demo"}, "spec": {"wroker": {}}})
    )
    with pytest.raises(JobError, match=r"spec\.wroker: Unknown field; did you mean worker\?"):
        Job.from_yaml("job.yaml", **options(cluster))
    assert Job.list(**options(cluster)) == []


@pytest.mark.apiserver
def test_a_context_that_does_not_exist_is_named(real):
    with pytest.raises(JobError, match="context 'prod' does not exist; choose one of"):
        train(fit, **options(real, where="prod"))


@pytest.mark.apiserver
def test_kubectl_creates_what_to_yaml_prints(real, control_plane, kubectl, laptop):
    (laptop / "data.bin").write_bytes(b"\xff")
    job = train(
        fit,
        name="demo",
        ps=1,
        workers=2,
        files=["data.bin"],
        resources={"cpu": 0.5},
        env={"MODE": "x"},
        volumes={"/data": "claim", "/host": "/var/tmp"},
        spec={"backoffLimit": 2, "cleanPodPolicy": "Never"},
        **options(real),
    )
    (laptop / "job.yaml").write_text(job.to_yaml())
    job.delete()
    BACKGROUND.call(real.stage.gone)
    control_plane.kubectl("create", "--validate=strict", "--filename", str(laptop / "job.yaml"))
    again = Job.get("demo", **options(real))
    printed = list(yaml.safe_load_all((laptop / "job.yaml").read_text()))
    assert list(yaml.safe_load_all(again.to_yaml())) == printed[-1:]
    assert [each["kind"] for each in printed] == ["ConfigMap", "PaddleJob"]


def test_a_job_is_scaled_suspended_and_resumed(cluster):
    job = train(fit, name="demo", **options(cluster))
    eventually(lambda: job.status().phase == "Running")
    assert job.scale(2) == "scaling to 2 workers"
    eventually(lambda: job.status().worker.ready == "2/2")
    assert job.suspend() == "suspending"
    eventually(lambda: job.status().phase == "Suspended")
    assert job.resume() == "resuming"
    eventually(lambda: job.status().phase == "Running")


def test_lines_progress_and_failures_are_those_of_the_pods(memory):
    memory.stage.fates.set("demo-worker-1", Exit(3, 4, message="ValueError: bad shape"))
    job = train(
        fit, name="demo", workers=2, where="cluster", spec={"backoffLimit": 0, "cleanPodPolicy": "Never"}
    )
    lines = job.logs(follow=True)
    memory.write("demo-worker-0", "step 1/4 loss 0.5", "step 2/4 loss 0.25")
    assert [next(lines), next(lines)] == ["step 1/4 loss 0.5", "step 2/4 loss 0.25"]
    assert str(job.progress()) == "step 2/4 loss 0.25"
    assert [each["loss"] for each in job.history()] == [0.5, 0.25]
    memory.write("demo-worker-1", "Traceback (most recent call last):", "ValueError: bad shape")
    with pytest.raises(JobFailed) as caught:
        job.wait(60)
    assert (caught.value.rank, caught.value.exit_code) == ("worker-1", 3)
    assert caught.value.last_lines == ("Traceback (most recent call last):", "ValueError: bad shape")
    rest = list(lines)
    assert "ValueError: bad shape" in rest
    assert job.explain().phase == "Failed"


def test_a_failure_whose_pod_is_gone_shows_the_recorded_lines(memory):
    memory.stage.fates.set("demo-worker-0", Exit(3, 0.5))
    spec = {"backoffLimit": 0, "cleanPodPolicy": "Always"}
    job = train(fit, name="demo", where="cluster", spec=spec)
    end = RankEnd("worker-0", "failed", 3, text="ValueError: bad shape")
    summary = Summary("demo", "default", job._job.state.metadata.uid)
    record = manifest(Record(summary, attempts=(AttemptRecord(0, "Failed", ranks=(end,)),)))
    BACKGROUND.call(memory.stage.client.create, CONFIG_MAPS, "default", record)
    eventually(lambda: job.status().phase == "Failed" and not BACKGROUND.call(memory.stage.names, PODS))
    with pytest.raises(JobFailed, match="its last lines are from the operator's record") as caught:
        job.wait(60)
    assert caught.value.last_lines == ("ValueError: bad shape",)
    marker, line = job.logs()
    assert (marker.rank, line.rank, line) == ("", "worker-0", "ValueError: bad shape")


def test_logs_may_be_cut_and_say_why_there_are_none(memory):
    """An empty answer could mean a silent program, pods to come or pods that are gone."""
    memory.stage.fates.set("waits-worker-0", Unschedulable())
    waits = train(fit, name="waits", where="cluster")
    eventually(lambda: [each for each in waits.logs() if each.startswith("waits has not started to write: ")])
    job = train(fit, name="demo", where="cluster")
    memory.write("demo-worker-0", "step 1", "step 2", "step 3")
    assert list(job.logs(tail=2)) == ["step 2", "step 3"]
    memory.stage.fates.set("done-worker-0", Exit(0, 0.2))
    done = train(fit, name="done", where="cluster").wait(60)
    gone = "the logs of done were deleted with its pods; spec.cleanPodPolicy: Never keeps them"
    eventually(lambda: [(each, each.rank) for each in done.logs()] == [(gone, "")])


def test_a_deleted_job_is_shown_as_it_was(memory):
    job = train(fit, name="demo", where="cluster")
    eventually(lambda: job.status().phase == "Running")
    Job.get("demo", where="cluster").delete()
    eventually(lambda: Job.list(where="cluster") == [])
    assert repr(job) == (
        "demo on cluster: Running: 1 worker running (PaddleJob demo in namespace default was deleted)"
    )
    assert "was deleted" in job._repr_html_()
    with pytest.raises(JobError, match="demo was deleted before it ended"):
        job.wait(60)
