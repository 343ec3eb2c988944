"""The verbs of `kubectl pdj`: what they print, and their exit codes."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

import pytest
import yaml

from paddlejob import __version__
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.client.containers import POD_METRICS
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from simkube.apiserver.rules.kinds import ResourceType
from simkube.build import job
from simkube.kubelet.outcomes import Exit, FailImagePull, Unschedulable
from tests.support.waiting import eventually

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "data"}, "data": {"a": "b"}}


def lines(result) -> list[str]:
    return result.stdout.splitlines()


@contextmanager
def writing(cluster, pod, *said):
    """Let a pod write and exit, while a command in the block follows it."""

    def write() -> None:
        cluster.write(pod, *said)
        cluster.let_go(pod)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


def stored(cluster, name="demo"):
    return cluster.server.get(PADDLE_JOBS, "default", name)


def test_submit_get_wait_and_delete(cluster, pdj, file):
    cluster.scene.fates.set("demo-worker-0", Exit(0, 1))
    result = pdj("submit", file(job().worker(1)))
    assert (result.exit_code, result.stdout) == (0, "paddlejob.batch.paddlepaddle.org/demo created\n")
    result = pdj("wait", "demo", "--timeout", "60s")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("paddlejob.batch.paddlepaddle.org/demo Completed")
    headings, row = lines(pdj("get"))
    assert headings.split() == [
        "NAME",
        "STATUS",
        "MODE",
        "PS",
        "WORKER",
        "PROGRESS",
        "DURATION",
        "AGE",
        "REASON",
    ]
    assert row.split()[:6] == ["demo", "Completed", "Single", "0/0", "1", "done"]
    assert row.split()[-1] == "WorkersSucceeded"
    assert lines(pdj("get", "demo", "-o", "name")) == ["paddlejob.batch.paddlepaddle.org/demo"]
    assert pdj("delete", "demo").stdout == "paddlejob.batch.paddlepaddle.org/demo deleted\n"
    result = pdj("get")
    assert (result.exit_code, result.stderr) == (0, "No PaddleJobs found in namespace default.\n")


def test_submit_follows_the_logs_to_the_end_and_exits_with_the_result(cluster, pdj, file):
    for code in (0, 3):
        name = f"job{code}"
        cluster.scene.hold(f"{name}-worker-0", code)
        with writing(cluster, f"{name}-worker-0", "hello"):
            built = job(name).worker(1).spec(backoffLimit=0, cleanPodPolicy="Never")
            result = pdj("submit", file(built), "--logs")
        assert "worker-0 | hello" in lines(result)
        assert result.exit_code == (1 if code else 0)
    assert "job3 Failed: " in result.stderr
    assert "exited with code 3" in result.stderr


def test_submit_watches_the_state_and_shows_the_real_error(cluster, pdj, file):
    cluster.scene.hold("demo-worker-1", 3, "ValueError: bad shape")
    built = job().worker(2).spec(backoffLimit=0, cleanPodPolicy="Never")
    with writing(cluster, "demo-worker-1", "Traceback (most recent call last):", "boom"):
        result = pdj("submit", file(built), "--watch")
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert len(told) == len(set(told)), "nothing is said twice"
    assert any(line.startswith("worker-1 failed first, in attempt 0: ") for line in told)
    assert told[-1] == "boom"


def test_submit_ends_in_time(pdj, file):
    result = pdj("submit", file(job().worker(1)), "--watch", "--timeout", "1s")
    assert result.exit_code == 124
    assert "error: demo has not ended after 1s; it keeps running" in result.stderr


def test_submit_takes_overrides(cluster, pdj, file):
    path = file(job().ps(1).worker(1, args=["--lr", "1"], env=[{"name": "A", "value": "old"}]))
    flags = "--name=other --workers=3 --ps 2 --image img:2 -e A=new -e B=x=y -- --epochs 5"
    result = pdj("submit", path, *flags.split())
    assert result.exit_code == 0, result.output
    spec = stored(cluster, "other")["spec"]
    assert (spec["worker"]["replicas"], spec["ps"]["replicas"]) == (3, 2)
    for role in ("worker", "ps"):
        (container,) = spec[role]["template"]["spec"]["containers"]
        assert container["image"] == "img:2"
        assert container["args"] == ["--epochs", "5"]
        assert container["env"] == [{"name": "A", "value": "new"}, {"name": "B", "value": "x=y"}]


def test_submit_generates_names_and_reads_several_files_and_stdin(cluster, pdj, file):
    path = file(job("a").worker(1), job("b").worker(1))
    for _ in range(2):
        result = pdj("submit", path, "-", "--generate-name", "-o", "name", stdin=json.dumps(_manifest("c")))
        assert [line.partition("/")[2].partition("-")[0] for line in lines(result)] == ["a", "b", "c"]
    assert len(cluster.server.objects(PADDLE_JOBS)) == 6
    result = pdj("submit", path, "--logs")
    assert result.exit_code == 2
    assert "--name, --watch and --logs are for one job, and there are 2" in result.stderr


def _manifest(name: str) -> dict:
    built = job(name).worker(1).manifest
    return {**built, "metadata": {"name": name}}


def test_submit_creates_what_stands_beside_the_job(cluster, pdj, file):
    result = pdj("submit", file(CONFIG, job().worker(1)))
    assert result.stderr == "configmaps/data created\n"
    result = pdj("submit", file(CONFIG, job("two").worker(1)))
    assert result.stderr == "configmaps/data already exists and was not changed\n"
    result = pdj("submit", file({**CONFIG, "kind": "Gadget"}, job("three").worker(1)))
    assert (result.exit_code, stored(cluster, "three")) == (2, None)
    assert "error: Gadget data: only ConfigMap" in result.stderr


def test_dry_runs_create_nothing(cluster, pdj, file):
    path = file(job().worker(2))
    assert "created (dry run)" in pdj("submit", path, "--dry-run=client").stdout
    assert "created (server dry run)" in pdj("submit", path, "--dry-run=server").stdout
    printed = yaml.safe_load(pdj("submit", path, "--dry-run=client", "-o", "yaml", "--workers=4").stdout)
    assert printed["spec"]["worker"]["replicas"] == 4
    assert cluster.server.objects(PADDLE_JOBS) == []


def test_what_is_wrong_with_a_file_is_named(cluster, pdj, file, tmp_path):
    bad = file(CONFIG, job().worker(0, resorces={}).spec(wroker=1))
    for arguments in (
        ("submit", bad),
        ("submit", bad, "--dry-run=server"),
        ("submit", bad, "--dry-run=client"),
        ("validate", bad),
    ):
        result = pdj(*arguments)
        assert result.exit_code == 2
        assert "spec.wroker: Unknown field" in result.stderr
        assert "spec.worker.replicas: Invalid value: 0" in result.stderr
        assert "resorces: Unknown field; did you mean resources?" in result.stderr
    assert cluster.server.objects(PADDLE_JOBS) == []
    assert cluster.server.get(CONFIG_MAPS, "default", "data") is None
    assert pdj("submit", file(job().worker(1, resorces={})), "--no-validate").exit_code == 0
    assert pdj("validate", file(job().worker(1))).stdout.endswith("job.yaml: PaddleJob demo is valid\n")
    result = pdj("submit", tmp_path / "missing.yaml")
    assert result.stderr == f"error: cannot read {tmp_path / 'missing.yaml'}: No such file or directory\n"
    result = pdj("submit", file(CONFIG))
    assert "has no PaddleJob, only ConfigMap" in result.stderr
    assert "-e A: write NAME=VALUE" in pdj("submit", bad, "-e", "A").stderr


def test_all_files_are_validated(pdj, file, tmp_path):
    good, bad = file(job().worker(1), name="good.yaml"), file(job().worker(0), name="bad.yaml")
    result = pdj("validate", bad, tmp_path / "missing.yaml", good)
    assert result.exit_code == 2
    assert result.stdout == f"{good}: PaddleJob demo is valid\n"
    first, second = result.stderr.splitlines()
    assert first.startswith(f"error: {bad}: spec.worker.replicas: Invalid value: 0")
    assert "missing.yaml: No such file" in second


def test_jobs_that_were_created_before_one_was_refused_are_named(pdj, file):
    pdj("submit", file(job("b").worker(1)))
    result = pdj("submit", file(job("a").worker(1), job("b").worker(1), job("c").worker(1)))
    assert (result.exit_code, result.stdout) == (2, "paddlejob.batch.paddlepaddle.org/a created\n")
    assert "PaddleJob b already exists" in result.stderr


def test_get_prints_yaml_json_and_wide(cluster, pdj, file):
    pdj("submit", file(job("a").worker(1), job("b").worker(1)))
    one = yaml.safe_load(pdj("get", "a", "-o", "yaml").stdout)
    assert (one["kind"], one["metadata"]["name"]) == ("PaddleJob", "a")
    many = json.loads(pdj("get", "-o", "json").stdout)
    assert (many["kind"], [each["metadata"]["name"] for each in many["items"]]) == ("List", ["a", "b"])
    assert lines(pdj("get", "-o", "wide"))[0].split()[-4:] == ["RESTARTS", "LOSS", "ETA", "MESSAGE"]
    assert lines(pdj("get", "-A"))[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert len(lines(pdj("get", "--no-headers"))) == 2


def test_get_shows_how_far_training_is(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    for progress, shown in (
        ({"percent": 45, "loss": "0.25", "eta": "1h20m"}, ["45%", "0.25", "1h20m"]),
        ({"percent": None, "epoch": 3}, ["epoch 3"]),
        ({"epoch": None, "step": 7}, ["step 7"]),
    ):
        patch = {"status": {"progress": progress}}
        cluster.do(
            lambda scene, patch=patch: scene.client.patch(
                PADDLE_JOBS, "default", "demo", patch, subresource="status"
            )
        )
        table = pdj("get", "-o", "wide").stdout
        assert all(each in table for each in shown)


def test_get_filters_by_label_phase_and_queue(cluster, pdj, file):
    cluster.scene.fates.set("wait-worker-0", Unschedulable())
    labelled = job("run").worker(1).metadata(labels={"team": "x"})
    queued = job("wait").worker(1).spec(schedulingPolicy={"queue": "gpu"})
    pdj("submit", file(labelled, queued))
    pdj("wait", "run", "--for=running", "--timeout=60s")
    shown = {
        "-l=team=x": ["run"],
        "--phase=Running": ["run"],
        "--phase=pending,running": ["run", "wait"],
        "--queue=gpu": ["wait"],
        "--queue=other": [],
    }
    for flag, expected in shown.items():
        found = lines(pdj("get", "-o", "name", *flag.split("=", 1)))
        assert [line.partition("/")[2] for line in found] == expected, flag


def test_a_pending_job_shows_its_reason(cluster, pdj, file):
    cluster.scene.fates.set("demo-worker-0", FailImagePull())
    pdj("submit", file(job().worker(1)))
    result = pdj("wait", "demo", "--for=running", "--timeout=2s")
    assert result.exit_code == 124
    assert "ErrImagePull" in result.stderr
    assert "ErrImagePull" in pdj("get", "-o", "wide").stdout
    assert "ErrImagePull" in pdj("describe", "demo").stdout


def test_describe_shows_ranks_and_events(cluster, pdj, file):
    pdj("submit", file(job().ps(1).worker(2)))
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    text = pdj("describe", "demo").stdout
    for rank in ("ps-0", "worker-0", "worker-1"):
        assert any(line.split()[:2] == [rank, "Running"] for line in text.splitlines())
    for shown in (text, pdj("events", "demo").stdout):
        assert any("Normal" in line and "1 ps and 2 workers running" in line for line in shown.splitlines())
    assert json.loads(pdj("events", "demo", "-o", "json").stdout)[0]["object"] == "PaddleJob/demo"


def test_describe_shows_spares(cluster, pdj, file):
    pdj("submit", file(job().worker(2).spec(spares=1)))
    cluster.do(lambda scene: scene.until(lambda: _has_spare(scene), "a spare is ready"))
    text = lines(pdj("describe", "demo"))
    assert any(line.split() == ["Spares:", "1/1", "ready"] for line in text)
    assert any(line.split()[:2] == ["worker-2", "Spare"] for line in text)


async def _has_spare(scene) -> bool:
    return (await scene.status()).get("spares") == "1/1"


def test_describe_shows_moved_ranks(cluster, pdj, file):
    pdj("submit", file(job().worker(2).spec(managedBy="kueue.x-k8s.io/multikueue")))
    patch = {"status": {"movedRanks": "1:2"}}
    cluster.do(lambda scene: scene.client.patch(PADDLE_JOBS, "default", "demo", patch, subresource="status"))
    text = lines(pdj("describe", "demo"))
    assert any(line.split() == ["Moved", "ranks:", "1", "in", "worker-2"] for line in text)


PROGRESS = {
    "step": 552,
    "steps": 62,
    "epoch": 9,
    "epochs": 40,
    "percent": 22,
    "loss": "0.25",
    "throughput": "120 samples/s",
    "eta": "3m",
    "phase": "evaluating",
    "attemptStep": 520,
    "savedStep": 496,
    "resumedStep": 434,
    "lostSteps": 62,
}
TRAINING = "epoch 9/40, step 552, 22%, loss 0.25, 120 samples/s, evaluating, ETA 3m"


def test_the_progress_of_training_is_shown_with_image_and_command(cluster, pdj, file):
    pdj(
        "submit", file(job().worker(1, command=["python", "train.py"], args=["--lr", "0.1 0.2", "--token=x"]))
    )
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    patch = {"status": {"progress": PROGRESS}}
    cluster.do(lambda scene: scene.client.patch(PADDLE_JOBS, "default", "demo", patch, subresource="status"))
    assert TRAINING in lines(pdj("top", "demo", "--once"))
    found = [line.split(":  ", 1) for line in lines(pdj("describe", "demo")) if ":  " in line]
    facts = {name: value.strip() for name, value in found}
    assert (
        facts.items()
        >= {
            "Progress": TRAINING,
            "Repeated step": "520",
            "Saved step": "496",
            "Resumed step": "434",
            "Lost steps": "62",
            "Worker image": "paddle:test",
            "Worker command": "python train.py --lr '0.1 0.2' --token=(redacted)",
        }.items()
    )


def test_waiting_for_the_pods_of_a_suspended_job_is_announced(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    assert pdj("wait", "demo", "--for=running", "--timeout=60s").exit_code == 0
    held = {"metadata": {"finalizers": ["example.com/slow"]}}
    cluster.do(lambda scene: scene.client.patch(PODS, "default", "demo-worker-0", held))
    pdj("suspend", "demo")
    eventually(lambda: "Suspended" in pdj("get").stdout)
    result = pdj("wait", "demo", "--for=suspended", "--timeout=1s")
    assert (result.exit_code, result.stdout) == (124, "")
    assert result.stderr.splitlines() == [
        "demo is suspended; waiting for its pods to terminate",
        "error: demo is not suspended after 1s: its pods are terminating",
    ]


def test_the_duration_of_a_suspended_job_is_the_time_that_it_ran(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    pdj("suspend", "demo")
    assert pdj("wait", "demo", "--for=suspended", "--timeout=60s").exit_code == 0
    patch = {"status": {"startTime": "2020-01-01T00:00:00Z", "activeSeconds": 300}}
    cluster.do(lambda scene: scene.client.patch(PADDLE_JOBS, "default", "demo", patch, subresource="status"))
    assert lines(pdj("get"))[1].split()[6] == "5m"
    assert any(line.split() == ["Duration:", "5m"] for line in lines(pdj("describe", "demo")))


def test_a_description_says_where_the_time_of_the_last_recovery_went(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    assert "Last recovery" not in pdj("describe", "demo").stdout
    ledger = {
        "attempt": 2,
        "kind": "InPlace",
        "detectSeconds": 0.02,
        "importSeconds": 1.2,
        "totalSeconds": 1.8,
    }
    patch = {"status": {"lastRecovery": ledger}}
    cluster.do(lambda scene: scene.client.patch(PADDLE_JOBS, "default", "demo", patch, subresource="status"))
    (shown,) = (line for line in lines(pdj("describe", "demo")) if line.startswith("Last recovery:"))
    assert shown.partition(":")[2].strip() == (
        "attempt 2, InPlace, 1.80s to the next new step: detect 0.02s, import 1.20s"
    )


def test_top_shows_what_the_ranks_use_where_that_is_measured(cluster, pdj, file):
    pdj("submit", file(job().worker(2)))
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    missing = "CPU and memory are not shown: the cluster has no metrics server"
    assert lines(pdj("top", "demo", "--once"))[-1] == missing
    containers = [{"name": "paddle", "usage": {"cpu": "250m", "memory": "64Mi"}}]
    labels = cluster.server.get(PODS, "default", "demo-worker-0")["metadata"]["labels"]
    metrics = {"metadata": {"name": "demo-worker-0", "namespace": "default", "labels": labels}}

    async def measure(scene) -> None:
        scene.server.create(POD_METRICS, {**metrics, "containers": containers})

    cluster.server.register(ResourceType(resource=POD_METRICS))
    missing = "CPU and memory are not shown: the metrics server has not measured these pods yet"
    assert lines(pdj("top", "demo", "--once"))[-1] == missing
    cluster.do(measure)
    heading, first, second = lines(pdj("top", "demo", "--once"))[-3:]
    assert heading.split()[-2:] == ["CPU", "MEMORY"]
    assert first.split()[-2:] == ["250m", "64Mi"]
    assert second.split()[-2:] == ["-", "-"]


def test_explain_is_one_sentence_and_details(cluster, pdj, file):
    cluster.scene.fates.set("demo-worker-0", Exit(3, 1))
    pdj("submit", file(job().worker(1).spec(backoffLimit=0)))
    pdj("wait", "demo")
    result = pdj("explain", "demo")
    assert result.exit_code == 0, result.output
    assert lines(result)[0].startswith("demo: Failed: ")
    assert json.loads(pdj("explain", "demo", "-o", "json").stdout)["phase"] == "Failed"


def test_env_of_a_rank(cluster, pdj, file):
    pdj("submit", file(job().worker(2, resources={"limits": {"nvidia.com/gpu": 1}})))
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    shown = lines(pdj("env", "demo", "--rank", "1"))
    assert {"PADDLE_TRAINER_ID=1", "PADDLE_GLOBAL_SIZE=2", "FLAGS_selected_gpus=0"} <= set(shown)
    assert [each for each in shown if "ATTEMPT" in each] == ["PADDLEJOB_ATTEMPT=0"]


def test_logs_of_all_ranks_or_one(cluster, pdj, file):
    pdj("submit", file(job().ps(1).worker(2)))
    for pod in ("ps-0", "worker-0", "worker-1"):
        cluster.write(f"demo-{pod}", f"from {pod}")
    found = sorted(line.replace(" ", "") for line in lines(pdj("logs", "demo")))
    assert found == ["ps-0|fromps-0", "worker-0|fromworker-0", "worker-1|fromworker-1"]
    assert lines(pdj("logs", "demo", "--rank", "1")) == ["from worker-1"]
    assert lines(pdj("logs", "demo", "-r", "ps-0", "--prefix")) == ["ps-0 | from ps-0"]
    stamped = pdj("logs", "demo", "-r", "0", "--timestamps").stdout
    assert stamped[4] == "-"
    assert stamped.endswith("Z from worker-0\n")
    assert pdj("logs", "demo", "-r", "0", "--tail", "0").stderr == "demo has no output to show\n"
    assert "demo has no rank 5" in pdj("logs", "demo", "-r", "5").stderr
    assert pdj("logs", "demo", "--first-error").stderr == "demo has not failed\n"


def test_changes_of_a_job(cluster, pdj, file):
    pdj("submit", file(job().worker(1)))
    prefix = "paddlejob.batch.paddlepaddle.org/demo"
    assert pdj("scale", "demo", "--replicas=2").stdout == f"{prefix} scaling to 2 workers\n"
    assert pdj("scale", "demo", "1").stdout == f"{prefix} scaling to 1 worker\n"
    assert pdj("scale", "demo", "3").stdout == f"{prefix} scaling to 3 workers\n"
    assert stored(cluster)["spec"]["worker"]["replicas"] == 3
    assert pdj("scale", "demo").exit_code == 2
    assert pdj("suspend", "demo").stdout == f"{prefix} suspending\n"
    assert pdj("wait", "demo", "--for=suspended", "--timeout=60s").exit_code == 0
    assert pdj("resume", "demo").stdout == f"{prefix} resuming\n"
    assert "stopping its pods" in pdj("stop", "demo").stdout
    assert "only a finished job can be retried" in pdj("retry", "demo").stderr


def test_a_finished_job_is_retried(cluster, pdj, file):
    cluster.scene.fates.set("demo-worker-0", Exit(0, 0.2))
    pdj("submit", file(job().worker(1)))
    pdj("wait", "demo")
    (name,) = lines(pdj("retry", "demo", "-o", "name"))
    assert name.startswith("paddlejob.batch.paddlepaddle.org/demo-")
    assert pdj("wait", "@latest", "--for=running", "--timeout=60s").exit_code == 0


def test_names_are_exact(pdj, file):
    pdj("submit", file(job("resnet").worker(1)))
    for verb in (("logs",), ("delete", "-y"), ("suspend",), ("describe",), ("wait",)):
        result = pdj(verb[0], "resne", *verb[1:])
        assert (result.exit_code, result.stderr) == (
            2,
            "error: there is no PaddleJob resne in namespace default; did you mean resnet?\n",
        )
    result = pdj("delete", "resnet", "nothing", "-y")
    assert "there is no PaddleJob nothing" in result.stderr
    assert lines(pdj("get", "-o", "name")), "nothing is deleted unless all of it exists"


def test_errors_name_the_flags_that_help(pdj, file):
    pdj("submit", file(job().worker(3)))
    assert pdj("submit", file(job().worker(3))).stderr == (
        "error: PaddleJob demo already exists in namespace default; delete it, or submit this one under "
        "another name (--name, --generate-name)\n"
    )
    pdj("wait", "demo", "--for=running", "--timeout=60s")
    assert pdj("logs", "demo", "--max-log-requests=2").stderr == (
        "error: demo has more than 2 logs to read at a time (3); choose a rank or a role (--rank), or allow "
        "more (--max-log-requests)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("get", ""), "'' is not the name of a PaddleJob"),
        (("logs", ".."), "'..' is not the name of a PaddleJob"),
        (("get", "-n", "."), "'.' is not the name of a namespace"),
        (("get", "DEMO"), "did you mean demo?"),
        (("get", "pod/demo"), "pod is not a kind of job"),
        (("get", "no/such/job"), "no is not a kind of job"),
        (("get", "日本 \x1b[2J"), "there is no PaddleJob 日本"),
        (("get", "--phase", "runing"), "runing is not a phase; choose among Pending, Starting, Running"),
    ],
)
def test_what_is_no_name_is_refused(pdj, file, arguments, expected):
    pdj("submit", file(job().worker(1)))
    result = pdj(*arguments)
    assert (result.exit_code, expected in result.stderr) == (2, True), result.stderr
    assert "\x1b" not in result.stderr


def test_flags_may_stand_before_the_verb_and_choose_the_namespace(cluster, pdj, file):
    pdj("submit", file(job().worker(1)), "-n", "team-a")
    assert cluster.server.get(PADDLE_JOBS, "team-a", "demo")
    assert lines(pdj("-n", "team-a", "get", "-o", "name"))
    assert not lines(pdj("get", "-o", "name"))
    assert "in namespace b" in pdj("--context", "other", "get").stderr
    result = pdj("get", "--context", "third")
    assert result.exit_code == 2
    assert "context 'third' does not exist; choose one of: other, test" in result.stderr


def test_wait_tells_how_jobs_ended(cluster, pdj, file):
    cluster.scene.fates.set("bad-worker-0", Exit(1, 0.2))
    cluster.scene.fates.set("good-worker-0", Exit(0, 0.2))
    pdj("submit", file(job("bad").worker(1).spec(backoffLimit=0), job("good").worker(1)))
    assert pdj("wait", "good", "bad", "--timeout=60s").exit_code == 1
    assert pdj("wait", "good").exit_code == 0
    result = pdj("wait", "bad", "--for=completed")
    assert (result.exit_code, "will not be completed" in result.stderr) == (1, True)
    result = pdj("wait", "bad", "--for=delete", "--timeout=0.1s")
    assert (result.exit_code, "bad is not deleted after 0.1s" in result.stderr) == (124, True)
    assert "choose ended, deleted" in pdj("wait", "bad", "--for=over").stderr
    assert "'x' is not a duration" in pdj("wait", "bad", "--timeout=x").stderr


def test_version(pdj):
    client, server, jobs = lines(pdj("version"))
    assert (server.startswith("Server Version: v1."), jobs) == (True, f"PaddleJobs: {names.API_VERSION}")
    assert client == f"Client Version: {__version__}"
    assert lines(pdj("version", "--client"))[0].startswith("Client Version: ")
    assert len(lines(pdj("version", "--client"))) == 1
    result = pdj("version", "--context", "third")
    assert (result.exit_code, result.stdout) == (2, f"{client}\n")
    assert pdj("--version").stdout.startswith("kubectl pdj, version")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(pdj, shell):
    result = pdj("completion", shell)
    assert result.exit_code == 0
    assert "kubectl_pdj" in result.stdout.lower()


def test_a_misspelt_verb_is_corrected(pdj):
    result = pdj("sumbit")
    assert (result.exit_code, "did you mean submit?" in result.stderr) == (2, True)
