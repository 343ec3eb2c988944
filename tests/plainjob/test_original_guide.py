"""The two manifests of the original guide, with the image that deploy/examples/job/Dockerfile makes.

The image's /root is put together from the Dockerfile's COPY lines, and its scripts run as processes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from documents import files
from paddlejob.plainjob.settings import read_settings
from plainjob.line_files import lines, write
from plainjob.test_manifests import JOB, REPOSITORY, container, environment

PROGRAMS = Path(__file__).parent / "programs"
RECIPE = (JOB / "Dockerfile").read_text().splitlines()


def manifest(name):
    (found,) = files.read(files.HERE / f"{name}.yaml")
    return found["spec"]


DATA, TRAIN = manifest("004-plain-job-1-job"), manifest("004-plain-job-2-job")


@pytest.fixture
def root(tmp_path):
    """The /root of the image, with a little data instead of the census."""
    for line in RECIPE:
        *sources, target = line.split()[1:] if line.startswith("COPY") else [""]
        for source in sources if target.startswith("/root") else ():
            place = tmp_path / target.removeprefix("/")
            copy = shutil.copytree if (REPOSITORY / source).is_dir() else shutil.copy
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(exist_ok=True) if target.endswith("/") else None
            copy(REPOSITORY / source, place)
    write(tmp_path / "root/raw/train-000.txt", lines(9))
    write(tmp_path / "root/raw/test-000.txt", lines(2, "test"))
    request = {"train_rows": 0, "test_rows": 0, "files": 16}
    ready = {"request": request, "train": {"train-000.txt": 9}, "test": {"test-000.txt": 2}}
    write(tmp_path / "root/raw/manifest.json", json.dumps(ready).encode())
    return tmp_path / "root"


def run(command, **variables):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        env={**os.environ, "PATH": path, **variables},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def data_variables(directory, **changed):
    """Those of the data Job, with its directory on the nodes moved to one of this machine."""
    found = environment(container(DATA))
    return found | {"OUT_DIR": f"{directory}{found['OUT_DIR']}", "VOLUME": "/nonesuch"} | changed


def test_the_image_splits_the_data_without_a_command(root, tmp_path):
    entry = Path(json.loads(RECIPE[-1].removeprefix("CMD "))[0])
    assert "command" not in container(DATA)
    done = run([tmp_path / entry.relative_to("/")], **data_variables(tmp_path))
    assert done.returncode == 0, done.stderr
    job = tmp_path / "home/work/mfs/paddle-cluster-job"
    assert {path.name for path in job.iterdir() if path.is_dir() and path.name != ".split"} == {
        "0", "1", "2", "output", "quick_start", "recommendation",
    }  # fmt: skip
    assert (job / "2/data/train-000.txt").read_bytes() == lines(9)[-21:]
    assert (job / "2/data/test-000.txt").read_bytes() == lines(2, "test")


def test_data_that_would_be_lost_with_the_container_goes_to_the_volume(root, tmp_path):
    volume, name = Path("/dev/shm"), f"paddlejob-test-{uuid.uuid4().hex}"
    assert os.path.ismount(volume)
    assert subprocess.check_output(["stat", "-c", "%m", tmp_path], text=True) == "/\n"
    try:
        done = run([root / "get_data.sh"], OUT_DIR=f"{tmp_path}/{name}", SPLIT_COUNT="3", VOLUME=str(volume))
        assert done.stdout.startswith(
            f"OUT_DIR {tmp_path}/{name} is not on a volume: writing to {volume}/{name}"
        )
        assert (volume / name / "manifest.json").exists()
    finally:
        shutil.rmtree(volume / name, ignore_errors=True)


@pytest.mark.parametrize("name", ["OUT_DIR", "SPLIT_COUNT"])
def test_a_missing_variable_is_named(root, tmp_path, name):
    done = run([root / "get_data.sh"], **data_variables(tmp_path, **{name: ""}))
    assert (done.returncode != 0, f"{name}: is not set" in done.stderr) == (True, True)


def test_the_image_starts_where_the_training_jobs_command_is_found():
    """Its shell is named relative to the working directory."""
    assert container(TRAIN)["command"] == ["bin/bash", "-c", "/root/start.sh"]
    assert not [line for line in RECIPE if line.startswith(("WORKDIR", "USER"))]


def test_the_training_job_trains_on_what_the_data_job_wrote(root, tmp_path):
    shutil.rmtree(root / "recommendation")
    shutil.copytree(PROGRAMS, root / "recommendation")
    assert run([root / "get_data.sh"], **data_variables(tmp_path)).returncode == 0
    # The volume that is a directory of the node in this manifest, and a claim in the other.
    (volume,) = TRAIN["template"]["spec"]["volumes"]
    variables = environment(container(TRAIN))
    assert variables["JOB_PATH"] == container(TRAIN)["volumeMounts"][0]["mountPath"]
    variables |= {"JOB_PATH": f"{tmp_path}{volume['hostPath']['path']}", "CONF_PADDLE_PORT": "17000"}
    shell, flag, script = container(TRAIN)["command"]
    local = f"{tmp_path}{script} --local {TRAIN['parallelism']} --program '{sys.executable} train.py'"
    done = run([f"/{shell}", flag, local], **variables)
    assert done.returncode == 0, done.stderr
    output = read_settings(variables).output_directory
    assert sorted(path.relative_to(output).as_posix() for path in output.rglob("*.log")) == [
        f"node_{node}/{name}.log" for node in range(3) for name in ("server", "train")
    ]
    header, settings, *servers = (output / "node_0/train.log").read_text().splitlines()[:5]
    assert header.endswith(f" trainer 0 commandline: {sys.executable} train.py")
    assert re.match(r"--- --nics=eth0 --port=\d+ --ports_num=2 --comment=", settings)
    assert settings.endswith(f" --trainer_id=0 --save_dir={output}")
    assert [line.split()[:3] for line in servers] == [["---", "pserver", str(node)] for node in range(3)]


def test_start_paddle_is_paddlejob_start(root):
    assert run([root / "start_paddle.py", "--help"]).stdout.startswith("Usage: start_paddle.py start")
