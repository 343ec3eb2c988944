"""Jobs on this machine: what is trained, shown, followed, awaited, changed and deleted."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest
import yaml

from local import jobs
from paddlejob import Job, JobError, JobFailed, JobNotFoundError, JobTimeoutError, train

pytestmark = pytest.mark.slow

EPOCHS = 2


def fit(steps: int, *, fails: bool = False) -> None:
    for epoch in range(1, EPOCHS + 1):
        for step in range(1, steps + 1):
            print(f"epoch {epoch}/{EPOCHS} step {step}/{steps} loss {1 / (epoch * step):.4f}")
    if fails:
        raise ValueError("bad shape")


def serve() -> None:
    print("up")
    time.sleep(600)


def test_a_function_is_trained_with_its_globals(laptop):
    job = train(fit, args={"steps": 2}, workers=2)
    assert job.wait(60) is job
    found = list(job.logs(rank=1))
    assert found == [
        "epoch 1/2 step 1/2 loss 1.0000",
        "epoch 1/2 step 2/2 loss 0.5000",
        "epoch 2/2 step 1/2 loss 0.5000",
        "epoch 2/2 step 2/2 loss 0.2500",
    ]
    assert {line.rank for line in found} == {"worker-1"}
    assert {line.rank for line in job.logs()} == {"worker-0", "worker-1"}
    progress = job.progress()
    assert str(progress) == "epoch 2/2 step 4/4 loss 0.25"
    assert progress.fraction == 1.0
    history = job.history()
    assert [(each["epoch"], each["step"]) for each in history] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert history[-1]["loss"] == 0.25
    assert history[0]["time"] <= history[-1]["time"]


def test_a_script_runs_with_its_arguments_and_files(laptop):
    (laptop / "lib").mkdir()
    (laptop / "lib" / "original.py").write_text("WORD = 'helped'\n")
    (laptop / "lib" / "helper.py").symlink_to("original.py")
    (laptop / "data.bin").write_bytes(b"\xff\xfe")
    (laptop / "train.py").write_text(
        "import os, sys\n"
        "from lib.helper import WORD\n"
        "from pathlib import Path\n"
        "print(WORD, *sys.argv[1:], Path('data.bin').read_bytes(), os.environ['MODE'])\n"
        "Path('made').write_text('writable')\n"
    )
    job = train("train.py", args=["--lr", 0.1], files=["lib", "data.bin"], env={"MODE": "x"}).wait(60)
    assert list(job.logs()) == ["helped --lr 0.1 b'\\xff\\xfe' x"]
    assert job.name.startswith("train-")
    assert not (laptop / "made").exists()


def test_a_volume_is_a_directory_of_this_machine_or_said_to_be_missing(laptop, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words").write_text("mounted")
    (laptop / "read.sh").write_text("cat /data/words; echo; echo done > /data/result\n")
    job = train("read.sh", volumes={"/data": str(tmp_path / "data")}).wait(60)
    assert list(job.logs()) == ["mounted"]
    assert (tmp_path / "data" / "result").read_text() == "done\n"


def test_servers_run_the_same_program(laptop):
    (laptop / "role.sh").write_text("echo I am $TRAINING_ROLE\n")
    job = train("role.sh", ps=1, workers=2)
    found = [f"{line.rank}: {line}" for line in job.logs(follow=True)]
    assert sorted(found) == ["ps-0: I am PSERVER", "worker-0: I am TRAINER", "worker-1: I am TRAINER"]
    job.wait(60)


def test_following_waits_for_the_first_line_and_ends_with_the_job(laptop):
    job = train(fit, args={"steps": 2})
    lines = list(job.logs(follow=True))
    assert len(lines) == 4
    assert job.status().phase == "Completed"


def test_a_failure_tells_the_rank_the_code_and_the_last_lines(laptop):
    job = train(fit, args={"steps": 1, "fails": True}, workers=2, spec={"backoffLimit": 0})
    with pytest.raises(JobFailed, match="exited with code 1: ValueError: bad shape") as caught:
        job.wait(60)
    error = caught.value
    assert error.rank in ("worker-0", "worker-1")
    assert error.exit_code == 1
    assert error.last_lines[0] == "Traceback (most recent call last):"
    assert error.last_lines[-1] == "ValueError: bad shape"
    assert "  | ValueError: bad shape" in str(error)
    assert job.explain().phase == "Failed"
    again = job.retry()
    with pytest.raises(JobFailed):
        again.wait(60)
    assert again.name != job.name


def test_a_job_is_awaited_in_any_loop_and_used_inside_it(laptop):
    async def main() -> None:
        job = train(fit, args={"steps": 1})
        assert await job is job
        # Methods that block work here too, as in the cell of a notebook.
        assert job.status().phase == "Completed"
        failing = train(fit, args={"steps": 1, "fails": True}, spec={"backoffLimit": 0})
        with pytest.raises(JobFailed):
            await failing
        lasting = train(serve)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await lasting
        lasting.delete(force=True)

    asyncio.run(main())
    asyncio.run(main())


def test_a_live_job_is_scaled_suspended_resumed_and_deleted(laptop):
    job = train(serve)
    with pytest.raises(JobTimeoutError, match=r"has not ended after 0\.1s"):
        job.wait(0.1)
    next(job.logs(follow=True))
    with pytest.raises(JobError, match=r"scale\('2'\): give a whole number of workers"):
        job.scale("2")
    assert job.scale(2) == "scaling to 2 workers"
    assert job.suspend() == "suspending"
    assert job.resume() == "resuming"
    with pytest.raises(JobError, match=r"is running; wait until it ends, or stop it .*delete\(force=True\)"):
        job.delete()
    assert job.delete(force=True) == "deleted"
    with pytest.raises(JobNotFoundError, match="was deleted"):
        job.status()
    assert Job.list() == []


def test_jobs_are_found_again(laptop):
    job = train(fit, args={"steps": 1}, name="mine").wait(60)
    assert Job.get(job.name).name == job.name
    assert Job.get("mine").name == job.name
    assert Job.get("@latest").name == job.name
    assert [each.name for each in Job.list()] == [job.name]
    with pytest.raises(LookupError, match="other"):
        Job.get("other")


def test_what_to_yaml_prints_runs_again(laptop):
    job = train(fit, args={"steps": 1}).wait(60)
    Path("job.yaml").write_text(job.to_yaml())
    again = Job.from_yaml("job.yaml").wait(60)
    assert list(again.logs()) == list(job.logs())
    assert again.to_yaml() == job.to_yaml()


def test_the_text_of_a_program_can_be_read_in_its_yaml(laptop):
    (laptop / "train.py").write_text("print(1)\n\nprint('ä')\n")
    text = train("train.py", ps=1).to_yaml()
    assert "  train.py: |\n    print(1)\n\n    print('ä')\n" in text
    assert "&id" not in text
    assert [each["kind"] for each in yaml.safe_load_all(text)] == ["ConfigMap", "PaddleJob"]


BAD = {
    "no file": (("gone.py",), {}, r"gone.py does not exist; to run a script in the image, pass command="),
    "no program": ((), {}, "pass a script, a function, or command= for a program in the image"),
    "a directory": ((".",), {}, "is a directory"),
    "no way to run": (("text.txt",), {}, "text.txt is neither .py nor .sh"),
    "words": (("text.sh",), {"args": "--lr 1"}, "is one string; pass a list of arguments"),
    "files": (("text.sh",), {"files": "text.txt"}, "is one path; pass a list"),
    "missing files": (("text.sh",), {"files": ["x"]}, "files=: x does not exist"),
    "a link": (("text.sh",), {"files": ["linked"]}, r"files=: linked/key is a link out of linked; copy"),
    "large": (("text.sh",), {"files": ["large"]}, "have 2.0 MiB; the limit is 1 MiB"),
    "workers": (("text.sh",), {"workers": 0}, r"spec\.worker\.replicas: Invalid value: 0"),
    "a variable": (("text.sh",), {"env": {"A": None}}, "env=: A is None; pass a string, or leave it out"),
    "a name": (("text.sh",), {"name": "Not A Name"}, r"metadata\.name"),
    "a spec": (("text.sh",), {"spec": {"backofLimit": 1}}, "backofLimit"),
    "positional": ((fit,), {"args": [3]}, "functions take keyword arguments"),
    "an argument": ((fit,), {"args": {"step": 3}}, r"fit\(step=3\): missing a required argument: 'steps'"),
    "a context": (("text.sh",), {"where": "prod"}, "KUBECONFIG: no such file"),
    "a namespace": (("text.sh",), {"namespace": "x"}, "namespace= works only on a cluster"),
    "an interpreter": (("text.sh",), {"python": "no-python"}, "--python no-python: no such program"),
    "an image's Python": (("text.sh",), {"where": "cluster", "python": "x"}, "python= works only with"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_in_one_sentence(laptop, case):
    given, options, sentence = BAD[case]
    (laptop / "text.txt").write_text("x")
    (laptop / "text.sh").write_text("true")
    (laptop / "large").write_bytes(b"x" * (2 << 20))
    (laptop / "linked").mkdir()
    (laptop / "linked" / "key").symlink_to(laptop / "text.txt")
    with pytest.raises(JobError, match=sentence) as caught:
        train(*given, **options)
    assert "\n" not in str(caught.value)
    assert Job.list() == []


def test_that_paddle_is_missing_is_said_before_anything_starts(laptop):
    (laptop / "train.py").write_text("from paddle import nn\n")
    (laptop / "python").write_text("#!/bin/sh\nexit 1\n")
    (laptop / "python").chmod(0o755)
    for python in ("", str(laptop / "python")):
        with pytest.raises(JobError, match=r"train.py imports paddle, which .* does not have; install it"):
            train("train.py", python=python)
    with pytest.raises(JobError, match="program not found"):
        train("train.py", python=str(laptop / "nothing"))
    assert Job.list() == []


def test_a_file_that_is_no_job_is_named(laptop):
    Path("none.yaml").write_text("kind: ConfigMap\n")
    Path("two.yaml").write_text("kind: PaddleJob\n---\nkind: PaddleJob\n")
    for path, sentence in (
        ("gone.yaml", "cannot read gone.yaml: No such file"),
        ("none.yaml", "none.yaml has no PaddleJob"),
        ("two.yaml", "two.yaml has 2 jobs"),
    ):
        with pytest.raises(JobError, match=sentence):
            Job.from_yaml(path)


def test_watching_prints_a_line_for_each_change(laptop, capsys):
    job = train(fit, args={"steps": 2})
    job.watch(interval_seconds=0.05)
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(dict.fromkeys(lines))
    assert lines[-1] == f"{job.name} on laptop: Completed: the worker succeeded, epoch 2/2 step 4/4 loss 0.25"
    assert repr(job) == lines[-1]
    assert repr(Job.get(job.name)) == lines[-1]


def test_the_interpreter_is_that_of_this_process(laptop, monkeypatch):
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (laptop / "which.py").write_text("import sys; print(sys.prefix)\n")
    assert list(train("which.py").wait(60).logs()) == [sys.prefix]


def test_each_process_of_a_pod_is_a_rank(laptop):
    (laptop / "cards.yaml").write_text(jobs.text(jobs.job(worker=jobs.role(2, jobs.LAUNCHER))))
    job = Job.from_yaml("cards.yaml").wait(60)
    assert [each.rank for each in job.processes()] == [0, 1, 2, 3]
    (third,) = job.processes(3)
    assert (third.pod, third.last_line) == ("worker-1", "hello from 1 of 1")
    assert list(job.logs(rank=3)) == ["hello from 1 of 1"]
