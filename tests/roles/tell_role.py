"""Run by a real Paddle in the environment of one pod: prints who Paddle's own role maker takes it for."""

import json
import os

import paddle
import paddle.distributed.fleet as fleet

paddle.enable_static()
# The role alone is asked for; nobody is there to meet.
os.environ["PADDLE_WITH_GLOO"] = "0"
collective = "PADDLE_PSERVERS_IP_PORT_LIST" not in os.environ
maker = fleet.PaddleCloudRoleMaker(is_collective=collective)
told = {"worker": maker._is_worker(), "id": maker._role_id(), "workers": maker._worker_num()}
if not collective:
    told |= {
        "server": maker._is_server(),
        "heter": maker._is_heter_worker(),
        "servers": maker._server_num(),
        "server_endpoints": maker._get_pserver_endpoints(),
        "heters": maker._heter_worker_num(),
        "stage": maker._get_stage_id() if "STAGE_ID" in os.environ else None,
        "stages": maker._get_num_stage() if "STAGE_ID" in os.environ else None,
        "next": maker._next_heter_trainer_endpoints,
        "previous": maker._previous_heter_trainer_endpoints,
        "me": maker._cur_endpoint,
    }
print("ROLE " + json.dumps(told))
