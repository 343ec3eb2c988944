"""The environment variables that Paddle and its kits read, and that the operator does not set.

docs/reference/environment.md lists the others. `is_covered` defines the names that count: the identity of a
process, its peers, ports, role, devices and timeouts. Other flags tune Paddle and are left to programs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

_COVERED = re.compile(
    r"PADDLE_\w+|FLAGS_selected_\w+|FLAGS_(?:START|FIXED)_PORT|FLAGS_stop_check_timeout|PORT_RANGE"
    r"|POD_\w+|TRAINING_ROLE|TRAINER_PORTS_NUM|HETER_\w+|STAGE_\w+|DISTRIBUTED_\w+|COLLECTIVE_\w+|SYS_JOB_ID"
    r"|MASTER_\w+|(?:LOCAL_)?RANK|WORLD_SIZE|NNODES|\w+_VISIBLE_DEVICES|PDC_\w+|FLAG_LLM_PDC"
)
_ENVIRONMENT = re.compile(r"environ|getenv|\benvs?\b")
_TABLE = "env_args_mapping"
"""The launcher's table of variables that replace its flags."""

USER: Mapping[str, str] = {
    "FLAGS_stop_check_timeout": "seconds to wait for peers; default 900",
    "FLAG_LLM_PDC": "resume from complete checkpoints only",
    "PADDLE_AUTO_CLUSTER": "flag of the launcher for automatic parallelism",
    "PADDLE_AUTO_PARALLEL_CONFIG": "flag of the launcher for automatic parallelism",
    "PADDLE_AUTO_PARALLEL_STAGE": "step of automatic parallelism",
    "PADDLE_CUDA_ARCH_LIST": "cards that an extension is compiled for",
    "PADDLE_DEBUG_CUDAGRAPHEDLAYER_FALLBACK_TO_DEFAULT": "debugging of CUDA graphs",
    "PADDLE_DEBUG_ENABLE_CUDAGRAPH_LAYER_LOGGING": "debugging of CUDA graphs",
    "PADDLE_DEVICES": "cards of the launcher; default all",
    "PADDLE_EXTENSION_DIR": "cache of compiled extensions",
    "PADDLE_FUSE_ALLREDUCE": "tuning of static graphs",
    "PADDLE_GLOO_FS_NAME": "rendezvous over a file system instead of HTTP",
    "PADDLE_GLOO_FS_PATH": "rendezvous over a file system instead of HTTP",
    "PADDLE_GLOO_FS_UGI": "rendezvous over a file system instead of HTTP",
    "PADDLE_HOME": "cache of downloads",
    "PADDLE_HUB": "cache of downloads",
    "PADDLE_INF_NAN_SKIP_OP": "debugging of infinite values",
    "PADDLE_INF_NAN_SKIP_ROLE": "debugging of infinite values",
    "PADDLE_INF_NAN_SKIP_VAR": "debugging of infinite values",
    "PADDLE_LOG_LEVEL": "flag of the launcher",
    "PADDLE_LOG_OVERWRITE": "flag of the launcher",
    "PADDLE_LOSS_SCALE": "tuning of static graphs",
    "PADDLE_MANUAL_PIPELINE_STAGE": "tuning of pipelines",
    "PADDLE_NPROC_PER_NODE": "processes of the launcher; default one per card",
    "PADDLE_P2P_SYNC_SEND": "tuning of pipelines",
    "PADDLE_PG_TIMEOUT": "milliseconds for an operation of NCCL; default 30 minutes",
    "PADDLE_RUN_MODE": "flag of the launcher",
    "PADDLE_SKIP_CHECK_ABI": "compiler of an extension",
    "PADDLE_SORT_IP": "flag of the launcher",
    "PADDLE_USE_FOUR_DIRECTIONS_P2P": "tuning of pipelines",
    "PDC_FC_INIT_STEP": "first step after a resume",
    "PDC_FLASH_DEVICE": "directory in memory for checkpoints",
    "PDC_INIT_STEP": "first step after a resume",
}
"""Left to the user."""

NODE: Mapping[str, str] = dict.fromkeys(
    (
        "ASCEND_RT_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "XPULINK_VISIBLE_DEVICES",
        "XPU_VISIBLE_DEVICES",
    ),
    "set by device plug-ins; a pod sees its own cards only",
)
"""Set on the node."""

LAUNCHER: Mapping[str, str] = {
    "COLLECTIVE_MASTER_IP": "set by the launcher for its own tuner",
    "PADDLE_BACKUP_ENV_PATH": "file in which the launcher stores long variables",
    "PADDLE_ENV_LIMIT_LEN": "length from which the launcher stores a variable in a file",
    "PADDLE_MASTER_ENDPOINT": "set by the launcher for paddle.distributed.rpc",
    "PADDLE_WORKER_ENDPOINT": "set by the launcher for paddle.distributed.rpc",
}
"""Set by the launcher for its processes."""

AVOIDED: Mapping[str, str] = {
    "MASTER_ADDR": "preferred to PADDLE_MASTER, and wrong for the launcher's processes; templates are warned",
    "MASTER_PORT": "preferred to PADDLE_MASTER, and wrong for the launcher's processes; templates are warned",
    "PADDLE_COORDINATOR_ENDPOINTS": "federated training, which a PaddleJob has no role for",
    "PADDLE_GLOO_PORT": "flag of the launcher's own parameter servers; pods have endpoints",
    "PADDLE_IPS": "flag of the launcher that replaces the master",
    "PADDLE_LAUNCH_WITH_ARGS": "removes the master; refused in templates",
    "PADDLE_SERVERS_ENDPOINTS": "flag of the launcher's own parameter servers; pods have endpoints",
    "PADDLE_SERVER_NUM": "flag of the launcher's own parameter servers; pods have endpoints",
    "PADDLE_START_PORT": "flag of the launcher that replaces the master",
    "PADDLE_TRAINERS_ENDPOINTS": "flag of the launcher's own parameter servers; pods have endpoints",
    "PADDLE_TRAINER_NUM": "flag of the launcher's own parameter servers; pods have endpoints",
    "NNODES": "default of the kits' flag, which PADDLE_NNODES replaces",
    "RANK": "default of the kits' flag, which PADDLE_RANK replaces",
    "WORLD_SIZE": "of torch; PaddleFormers sets it for its own process",
    "PDC_LONGJOB_ID": "makes PaddleFormers call the API of another platform",
    "POD_NAME": "another platform's name of a pod, in the names of debug files",
}
"""Not set on purpose."""

LEGACY: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "DISTRIBUTED_TRAINER_ENDPOINTS",
            "FLAGS_FIXED_PORT",
            "FLAGS_START_PORT",
            "PADDLE_CLUSTER_TOPO_PATH",
            "PADDLE_ELASTIC_ETCD_SERVICE_HOST",
            "PADDLE_ELASTIC_ETCD_SERVICE_PORT",
            "PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL",
            "PADDLE_ELASTIC_FORCE",
            "PADDLE_ELASTIC_JOB_ID",
            "PADDLE_ELASTIC_NP",
            "PADDLE_ELASTIC_SCALE",
            "PADDLE_ELASTIC_SERVER",
            "PADDLE_ELASTIC_TTL",
            "PADDLE_ENABLE_AUTO_MAPPING",
            "PADDLE_ENABLE_ELASTIC",
            "PADDLE_LOCAL_DEVICE_IDS",
            "PADDLE_NEED_RANK_MAPPING",
            "PADDLE_ORIGINAL_CMD_ARGS",
            "PADDLE_RANK_MAPPING_PATH",
            "PADDLE_SEARCHED_DIST_CONTEXT_PATH",
            "PADDLE_WORLD_DEVICE_IDS",
        ),
        "of the launcher before Paddle 2.3, or of its successors' compatibility code",
    ),
    **dict.fromkeys(
        (
            "PADDLE_EDL_FS_CACHE",
            "PADDLE_EDL_HDFS_CHECKPOINT_PATH",
            "PADDLE_EDL_HDFS_HOME",
            "PADDLE_EDL_HDFS_NAME",
            "PADDLE_EDL_HDFS_UGI",
            "PADDLE_EDL_ONLY_FOR_CE_TEST",
            "PADDLE_EDL_SAVE_CHECKPOINT_INTER",
            "PADDLE_RUNNING_ENV",
            "PADDLE_RUNNING_PLATFORM",
        ),
        "of automatic checkpoints on HDFS, which PADDLE_RUNNING_ENV would turn on",
    ),
    **dict.fromkeys(
        ("PADDLE_IS_BARRIER_ALL_ROLE", "PADDLE_PSERVER_ID", "PADDLE_XPU_ENDPOINTS", "PADDLE_XPU_ID"),
        "of the role makers of paddle.incubate",
    ),
}
"""Read by superseded code only."""

KNOWN: Mapping[str, str] = {**USER, **NODE, **LAUNCHER, **AVOIDED, **LEGACY}


def is_covered(name: str) -> bool:
    return _COVERED.fullmatch(name) is not None


def variables_read(source: str) -> Iterator[str]:
    """Yield the names that a Python module reads from the environment."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=reader, args=[ast.Constant(value=str(name)), *_]) if _is_environment(reader):
                yield name
            case ast.Subscript(value=mapping, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                if _is_environment(mapping):
                    yield name
            case ast.Compare(left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()]):
                if _is_environment(node.comparators[0]):
                    yield name
            case ast.Assign(targets=[ast.Name(id=table)], value=ast.Dict(keys=keys)) if table == _TABLE:
                yield from (str(key.value) for key in keys if isinstance(key, ast.Constant))


def _is_environment(node: ast.expr) -> bool:
    return _ENVIRONMENT.search(ast.unparse(node)) is not None
