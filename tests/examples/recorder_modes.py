"""Trains in modes of Paddle and prints, for each, its losses and the values that the recorder counted.

python recorder_modes.py MODE...
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import paddle
from paddle import amp, distributed, nn, static
from paddle.distributed import fleet
from paddle.distributed.fleet.utils import recompute

PROGRESS = sys.modules["paddlejob_recorder"]._progress
BATCHES = [np.random.RandomState(seed).rand(4, 8).astype("float32") for seed in range(12)]


def layers():
    paddle.seed(1)
    return [nn.Linear(8, 8), nn.Linear(8, 1)]


def loss_of(net, batch):
    return ((net(batch) - batch.sum(1, keepdim=True)) ** 2).mean()


def train(net, optimizer, *, loss=loss_of, backward=lambda loss: loss.backward(), step=None, accumulate=1):
    losses = []
    for number, batch in enumerate(map(paddle.to_tensor, BATCHES), 1):
        found = loss(net, batch)
        backward(found)
        losses.append(own_part(found).item())
        if number % accumulate == 0:
            (step or optimizer.step)()
            optimizer.clear_grad()
    return losses


def own_part(tensor):
    """Return the part of a tensor that this rank has, without communication."""
    return tensor._local_value() if tensor.is_dist() else tensor


def sgd(net):
    return paddle.optimizer.SGD(0.01, parameters=net.parameters())


# --- one rank


def plain():
    net = nn.Sequential(*layers())
    return train(net, sgd(net))


def minimize():
    net = nn.Sequential(*layers())
    optimizer, losses = sgd(net), []
    for batch in map(paddle.to_tensor, BATCHES):
        loss = loss_of(net, batch)
        loss.backward()
        optimizer.minimize(loss)
        losses.append(loss.item())
        net.clear_gradients()
    return losses


def parameter_groups():
    net = nn.Sequential(*layers())
    groups = [{"params": layer.parameters()} for layer in net]
    return train(net, paddle.optimizer.Adam(0.01, parameters=groups))


def autograd_backward():
    net = nn.Sequential(*layers())
    return train(net, sgd(net), backward=lambda loss: paddle.autograd.backward(tensors=[loss]))


def accumulation():
    net = nn.Sequential(*layers())
    return train(net, sgd(net), accumulate=3)


def shape_of_one_element():
    net = nn.Sequential(*layers())
    return train(net, sgd(net), loss=lambda *of: loss_of(*of).reshape([1, 1]))


class Accelerator:
    """Paddle's tracer on a CPU that passes for an accelerator, because paddle.amp has no effect on CPUs."""

    def __init__(self, tracer):
        vars(self)["tracer"] = tracer

    def __getattr__(self, name):
        if name == "_expected_place":
            places = {
                f"is_{kind}_place": lambda kind=kind: kind == "gpu" for kind in ("gpu", "xpu", "custom")
            }
            return SimpleNamespace(**places)
        return getattr(self.tracer, name)

    def __setattr__(self, name, value):
        setattr(self.tracer, name, value)


def accept_cpu():
    casting = sys.modules["paddle.amp.auto_cast"]
    casting._is_gpu_bfloat16_supported = lambda: True
    for module in (casting, amp.grad_scaler):
        module._dygraph_tracer = lambda: Accelerator(paddle.base.framework._dygraph_tracer())


def cast_loss(level, net, batch):
    with amp.auto_cast(level=level, dtype="bfloat16"):
        return loss_of(net, batch).astype("bfloat16")


def amp_o1():
    net = nn.Sequential(*layers())
    return train(net, sgd(net), loss=partial(cast_loss, "O1"))


def amp_o2():
    net = nn.Sequential(*layers())
    net, optimizer = amp.decorate(net, sgd(net), level="O2", dtype="bfloat16")
    assert net[0].weight.dtype == paddle.bfloat16
    return train(net, optimizer, loss=partial(cast_loss, "O2"))


def new_scaler(scale=32768.0):
    return amp.GradScaler(init_loss_scaling=scale, use_dynamic_loss_scaling=False)


def train_scaled(net, optimizer, scaler, **options):
    def step():
        scaler.step(optimizer)
        scaler.update()

    return train(net, optimizer, backward=lambda loss: scaler.scale(loss).backward(), step=step, **options)


def scaled(scale=32768.0, **options):
    net = nn.Sequential(*layers())
    return train_scaled(net, sgd(net), new_scaler(scale), **options)


def overflow():
    return scaled(scale=math.inf)


def scaled_recomputation():
    def loss(net, batch):
        hidden = net[0](batch)
        return recompute(lambda inputs: ((net[1](inputs) - batch.sum(1, keepdim=True)) ** 2).mean(), hidden)

    return scaled(loss=loss)


def hapi():
    net = nn.Sequential(*layers())
    model, losses = paddle.Model(net), []
    model.prepare(sgd(net), nn.MSELoss())
    for batch in BATCHES:
        [loss] = model.train_batch([batch], [batch.sum(1, keepdims=True)])
        losses.append(float(loss[0] if isinstance(loss, list) else loss))
    return losses


def static_graph(run=None):
    paddle.enable_static()
    try:
        with static.program_guard(static.Program(), static.Program()):
            x, y = static.data("x", [None, 8]), static.data("y", [None, 1])
            loss = ((static.nn.fc(x, 1) - y) ** 2).mean()
            paddle.optimizer.SGD(0.01).minimize(loss)
            executor = static.Executor()
            executor.run(static.default_startup_program())
            return (run or run_batches)(executor, [x, y], loss)
    finally:
        paddle.disable_static()


def run_batches(executor, _, loss):
    feeds = ({"x": batch, "y": batch.sum(1, keepdims=True)} for batch in BATCHES)
    return [executor.run(feed=feed, fetch_list=[loss])[0].item() for feed in feeds]


def train_from_dataset():
    """Paddle counts these steps itself."""
    # Paddle 3 trains so on programs of Paddle 2 only.
    with getattr(paddle.pir_utils, "OldIrGuard", nullcontext)():
        return static_graph(run_dataset)


def run_dataset(executor, variables, _):
    with tempfile.NamedTemporaryFile("w") as file:
        for row in np.concatenate(BATCHES):
            print(8, *row, 1, row.sum(), file=file)
        file.flush()
        dataset = distributed.InMemoryDataset()
        dataset.init(batch_size=4, thread_num=1, pipe_command="cat", use_var=variables)
        dataset.set_filelist([file.name])
        dataset.load_into_memory()
        executor.train_from_dataset(static.default_main_program(), dataset)
    return []


# --- two ranks


def data_parallel():
    net = paddle.DataParallel(nn.Sequential(*layers()))
    return train(net, sgd(net))


def sharding(**configs):
    net = nn.Sequential(*layers())
    initialize({"sharding_degree": 2}, sharding_configs=configs)
    optimizer = paddle.optimizer.AdamW(0.01, parameters=net.parameters())
    return fleet.distributed_model(net), fleet.distributed_optimizer(optimizer)


def sharding_stage_1():
    return train(*sharding())


def sharding_stage_1_split():
    # Gloo does not have this collective. The part of a rank is a view of the whole.
    def reduce_scatter(part, whole, *, group, **_):
        return distributed.all_reduce(whole, group=group, sync_op=False)

    # Paddle 3 refuses CPUs.
    fusion = fleet.utils.tensor_fusion_helper
    fusion.alignment["cpu"], fusion.get_current_device_type = fusion.alignment["gpu"], lambda: "cpu"
    with mock.patch.object(distributed, "reduce_scatter", reduce_scatter):
        return train(*sharding(split_param=True))


def sharding_stage_1_scaled():
    net, optimizer = sharding()
    return train_scaled(net, optimizer, fleet.distributed_scaler(new_scaler()))


def initialize(degrees, *, pipeline_configs=None, **configs):
    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {
        "dp_degree": 1,
        "mp_degree": 1,
        "pp_degree": 1,
        "sharding_degree": 1,
        **degrees,
    }
    strategy.pipeline_configs = pipeline_configs or {}
    for group, options in configs.items():
        for name, value in options.items():
            setattr(strategy.hybrid_configs[group], name, value)
    fleet.init(is_collective=True, strategy=strategy)


def pipeline_model():
    distributed.ParallelEnv._device_id = 0  # Paddle gives the CPU none
    initialize(
        {"pp_degree": 2},
        pipeline_configs={"accumulate_steps": 2, "micro_batch_size": 2},
        pp_configs={"use_batch_p2p_comm": False},  # needs streams, which gloo does not have
    )
    net = fleet.meta_parallel.PipelineLayer(layers=layers(), num_stages=2, loss_fn=nn.MSELoss())
    return fleet.distributed_model(net), fleet.distributed_optimizer(sgd(net))


def pipeline_batches():
    return [[batch, batch.sum(1, keepdim=True)] for batch in map(paddle.to_tensor, BATCHES)]


def pipeline():
    net, optimizer = pipeline_model()
    losses = [net.train_batch(batch, optimizer).item() for batch in pipeline_batches()]
    net.eval_batch(pipeline_batches()[0], compute_loss=True)
    assert PROGRESS.phase == "evaluating"
    return losses


def scaled_pipeline():
    """Train without `train_batch`, as PaddleFormers does."""
    net, optimizer = pipeline_model()
    scaler, losses = fleet.distributed_scaler(new_scaler()), []
    for batch in pipeline_batches():
        data = net._prepare_training(batch, optimizer, None)
        losses.append(net.forward_backward_pipeline(data, scaler).item())
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
    return losses


def distributed_tensors(placement_of_data, placements_of_weights, loss=loss_of):
    mesh = distributed.ProcessMesh([0, 1])
    net = nn.Sequential(*layers())
    for layer, placement in zip(net, placements_of_weights, strict=True):
        layer.weight = distributed.shard_tensor(layer.weight, mesh, [placement])
        layer.bias = distributed.shard_tensor(layer.bias, mesh, [distributed.Replicate()])

    def placed_loss(net, batch):
        return loss(net, distributed.shard_tensor(batch, mesh, [placement_of_data]))

    return train(net, sgd(net), loss=placed_loss)


def sharded_weights():
    return distributed_tensors(distributed.Replicate(), [distributed.Shard(1), distributed.Shard(0)])


def sharded_data():
    return distributed_tensors(distributed.Shard(0), [distributed.Replicate()] * 2)


def sharded_sum():
    """The loss of a rank is a part of the sum, so none is reported."""
    distributed_tensors(
        distributed.Shard(0), [distributed.Replicate()] * 2, lambda net, batch: net(batch).sum()
    )
    return []


def main(names):
    accept_cpu()
    distributed.init_parallel_env()
    for name in names:
        before, PROGRESS.loss, PROGRESS._loss_read = PROGRESS.step, None, -math.inf
        losses = globals()[name]()
        counted = {"steps": PROGRESS.step - before, "loss": PROGRESS.loss, "stage": PROGRESS.stage}
        print(name, json.dumps({"losses": losses, **counted}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
