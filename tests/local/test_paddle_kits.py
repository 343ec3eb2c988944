"""PaddleFormers and ERNIEKit as PaddleJobs: their real command lines, Paddle's real launcher, two workers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from local.test_paddle import NO_DELAY, made_by
from paddlejob.local.runner import Ending
from tests.support.waiting import eventually_async

LLM = Path(__file__).resolve().parents[2] / "examples" / "llm"
PROBE = Path(__file__).with_name("kit_probe.py")
DELETED = {
    "PADDLE_TRAINERS_NUM",
    "PADDLE_TRAINER_ID",
    "PADDLE_WORKERS_IP_PORT_LIST",
    "PADDLE_TRAINERS",
    "PADDLE_NUM_GRADIENT_SERVERS",
    "PADDLE_ELASTIC_JOB_ID",
    "PADDLE_TRAINER_ENDPOINTS",
    "DISTRIBUTED_TRAINER_ENDPOINTS",
    "FLAGS_START_PORT",
    "PADDLE_ELASTIC_TIMEOUT",
}
"""Both kits remove them before they start the launcher."""

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def llm_python():
    return made_by("paddle_env.py", "3.3.1-llm")


@pytest.fixture
async def start_tiny(start, llm_python, directory):
    """Start the job of the example with these fields of its container; it saves to `directory`."""

    async def begin(**fields):
        job = yaml.safe_load((LLM / "tiny.yaml").read_text())
        job["spec"]["restartPolicy"] = NO_DELAY
        job["spec"]["worker"]["template"]["spec"]["containers"][0].update(fields)
        volume = f"llm-checkpoints={directory}"
        return await start(job, python=llm_python, workspace=LLM, volumes=(volume,))

    return begin


def losses(log, *, after):
    found = re.findall(r"loss: (\S+), learning_rate: \S+, global_step: (\d+),", log)
    return {int(step): float(loss) for loss, step in found if int(step) > after}


async def test_paddleformers_trains_and_resumes_from_the_newest_complete_checkpoint(start_tiny, directory):
    train = "exec paddleformers-cli train tiny_sft.yaml max_steps=120 save_steps=20"
    run = await start_tiny(args=[f"python prepare.py /data && {train}"])
    done = directory / "checkpoint-20/.checkpoint_done"
    await eventually_async(lambda: done.exists() or run.task.done(), within_seconds=300)
    (directory / "checkpoint-110").mkdir()
    await run.kill("worker-1")
    assert await run.ended() is Ending.COMPLETED
    assert run.status.restarts == 1
    log = run.log("worker-0", "paddle")
    assert "world_size: 2, distributed training: True" in log
    resumed = int(re.search(r"resuming training at /checkpoints/checkpoint-(\d+)\.", log)[1])
    assert resumed in {20, 40, 60, 80, 100}
    assert f"Continuing training from global step {resumed}" in log
    # Each worker prints the mean of both, so that they agree if and only if they train together.
    mean_losses = losses(log, after=resumed)
    assert mean_losses == losses(run.log("worker-1", "paddle"), after=resumed)
    assert mean_losses[120] < 1.0  # untrained: 3.1, the logarithm of 23 words
    assert (directory / "model.safetensors.index.json").is_file()


@pytest.mark.parametrize("package", ["paddleformers.cli", "erniekit"])
async def test_a_kit_deletes_variables_and_the_others_override_its_launcher_arguments(start_tiny, package):
    run = await start_tiny(command=["python"], args=[str(PROBE), package])
    assert await run.ended() is Ending.COMPLETED, run.log("worker-0", "paddle")
    for index in range(2):
        rank = f"worker-{index}"
        [line] = re.findall(r'^{"world_size.*', run.log(rank, "paddle"), re.MULTILINE)
        seen = json.loads(line)
        assert (seen["world_size"], seen["sum"]) == (2, 3)
        assert " --master 127.0.0.1:8080 --nnodes 1 " in seen["launcher"]
        assert not DELETED & seen["environ"].keys()
        assert DELETED & run.env(rank).keys()
        of_launcher = {name: seen["environ"][name] for name in ("PADDLE_NNODES", "PADDLE_RANK")}
        assert of_launcher == {"PADDLE_NNODES": "2", "PADDLE_RANK": str(index)}


PARSE = """
import sys
from paddleformers.cli.hparams import get_train_args, read_args
for file in sys.argv[1:]:
    sys.argv[1:] = ["train", file]
    print(get_train_args(read_args())[4].output_dir)
"""


def test_paddleformers_knows_every_setting_of_the_examples_for_gpus(llm_python, tmp_path):
    settings = []
    for example in ("finetune", "pretrain"):
        config_map, _ = yaml.safe_load_all((LLM / f"{example}.yaml").read_text())
        [text] = config_map["data"].values()
        settings.append(tmp_path / f"{example}.yaml")
        settings[-1].write_text(text)
    done = subprocess.run(
        [llm_python, "-W", "ignore", "-c", PARSE, *map(str, settings)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{Path(llm_python).parent}:/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert re.findall("^/checkpoints/.*", done.stdout, re.MULTILINE) == [
        "/checkpoints/llm-finetune",
        "/checkpoints/llm-pretrain",
    ]
