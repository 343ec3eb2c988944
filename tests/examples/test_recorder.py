"""The recorder beside real Paddle: it counts what happens, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorder.interpreter import SITE, reports, run

PROGRAM = str(Path(__file__).resolve().parents[2] / "examples" / "resnet" / "train_fleet.py")
LAUNCH = ["-m", "paddle.distributed.launch"]

pytestmark = [pytest.mark.paddle, pytest.mark.timeout(600)]

DATA = """
import paddle
paddle.seed(1)
inputs = paddle.rand([256, 8])
data = paddle.io.TensorDataset([inputs, inputs.sum(axis=1, keepdim=True)])
net = paddle.nn.Linear(8, 1)
"""
DYGRAPH = f"""{DATA}
class Own(paddle.optimizer.Adam):
    def step(self):
        super().step()

optimizer = Own(0.01, parameters=net.parameters())
for epoch in range(3):
    net.train()
    for batch, sums in paddle.io.DataLoader(data, batch_size=32):
        loss = ((net(batch) - sums) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
net.eval()
"""
HAPI = f"""{DATA}
model = paddle.Model(net)
model.prepare(paddle.optimizer.SGD(0.01, parameters=net.parameters()), paddle.nn.MSELoss())
model.fit(data, data, epochs=2, batch_size=32, verbose=0)
"""
STATIC = """
import numpy, paddle
paddle.enable_static()
x, y = paddle.static.data("x", [None, 8]), paddle.static.data("y", [None, 1])
loss = ((paddle.static.nn.fc(x, 1) - y) ** 2).mean()
paddle.optimizer.SGD(0.01).minimize(loss)
executor = paddle.static.Executor()
executor.run(paddle.static.default_startup_program())
for seed in range(20):
    inputs = numpy.random.RandomState(seed).rand(32, 8).astype("float32")
    executor.run(feed={"x": inputs, "y": inputs.sum(1, keepdims=True)}, fetch_list=[loss])
"""

SINGLE = STATIC.replace("fetch_list=[loss]", "fetch_list=loss")
BROKEN = """
import sys

def broken(*arguments, **options):
    raise LookupError("broken")

hooks = sys.modules["paddlejob_recorder.hooks"]
for kind in (hooks.Progress, hooks.Sender):
    for name in vars(kind):
        if callable(vars(kind)[name]) and name not in ("__init__", "guard", "turn_off"):
            setattr(kind, name, broken)
hooks._Hooks._is_training = broken
"""
"""An error in everything that the hooks call."""
EVERYTHING = f"""{DYGRAPH}
import contextlib, io
with contextlib.suppress(RuntimeError):  # nobody to wait for
    paddle.distributed.barrier()
paddle.save(optimizer.state_dict(), file := io.BytesIO())
file.seek(0)
optimizer.set_state_dict(paddle.load(file))
{HAPI.removeprefix(DATA)}
print(net.weight.numpy().tobytes().hex())
{STATIC}
print(executor.run(feed={{"x": inputs, "y": inputs[:, :1]}}, fetch_list=[loss])[0].tobytes().hex())
"""


def test_whatever_breaks_in_it_training_is_the_same_and_one_line_says_so(collective_python, tmp_path):
    bare, beside = (
        run(program, tmp_path, python=collective_python, PATH="/usr/bin:/bin", PYTHONPATH=path)
        for program, path in ((EVERYTHING, ""), (f"{BROKEN}{EVERYTHING}", str(SITE)))
    )
    assert (bare.returncode, beside.returncode) == (0, 0), bare.stderr + beside.stderr
    assert beside.stdout == bare.stdout
    said = [line for line in beside.stderr.splitlines() if "recorder" in line]
    assert said == ["paddlejob recorder is off: LookupError: broken"]


@pytest.mark.parametrize("version", ["parameter_server_python", "collective_python"])
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(DYGRAPH, {"step": 24, "epoch": 3, "phase": "evaluating"}, id="dygraph"),
        pytest.param(HAPI, {"step": 16, "total": 16, "epoch": 2, "phase": "evaluating"}, id="hapi"),
        pytest.param(STATIC, {"step": 20, "phase": "training"}, id="static"),
        pytest.param(SINGLE, {"step": 20, "phase": "training"}, id="one variable fetched"),
    ],
)
def test_an_unchanged_program_is_counted(program, expected, version, request, tmp_path):
    done = run(program, tmp_path, python=request.getfixturevalue(version), PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert "paddlejob recorder" not in done.stderr
    last = reports(tmp_path)[-1]
    assert {name: last.get(name) for name in expected} == expected
    assert 0 < last["loss"] < 1000
    assert last["waitingSeconds"] > 0


@pytest.mark.parametrize("launcher", [[], LAUNCH], ids=["plain", "launch"])
def test_two_workers_train_to_the_same_bits_with_and_without_it(
    launcher, start_job, collective_python, digits, tmp_path
):
    command = [collective_python, *launcher, PROGRAM]
    settings = {"DATA_DIR": digits, "EPOCHS": 1}
    bare = start_job(command, workers=2, **settings)
    weights = [worker.wait_for(r"weights (\S+) on 2 workers$")[1] for worker in bare.workers]
    bare.exit_codes()

    progress = tmp_path / "progress"
    recorded = start_job(command, workers=2, PYTHONPATH=SITE, PADDLEJOB_PROGRESS_FILE=progress, **settings)
    assert [worker.wait_for(r"weights (\S+) on 2 workers$")[1] for worker in recorded.workers] == weights
    assert recorded.exit_codes() == {"worker-0": 0, "worker-1": 0}
    last = {report["rank"]: report["step"] for report in reports(tmp_path)}
    assert last == {0: 62, 1: 62}
