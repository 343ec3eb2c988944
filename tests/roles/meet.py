"""Run by a real Paddle in the environment of one pod: meets the other pods, and says so."""

import os

import paddle
import paddle.distributed as dist
import paddle.distributed.fleet as fleet


def meet_workers() -> None:
    dist.init_parallel_env()
    total = paddle.to_tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    print(f"MET {dist.get_world_size()} workers, sum {total.item():.0f}", flush=True)
    print("AT", os.environ["PADDLE_MASTER"], os.environ["PADDLE_TRAINER_ENDPOINTS"], flush=True)


def meet_servers() -> None:
    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker())
    inputs = paddle.static.data("inputs", [None, 2], "float32")
    loss = paddle.mean(paddle.static.nn.fc(inputs, 1))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    paddle.static.Executor(paddle.CPUPlace()).run(paddle.static.default_startup_program())
    fleet.init_worker()
    print(f"MET {fleet.server_num()} servers, {fleet.worker_num()} workers", flush=True)
    fleet.stop_worker()


if "PADDLE_PSERVERS_IP_PORT_LIST" in os.environ:
    meet_servers()
else:
    meet_workers()
