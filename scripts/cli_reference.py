"""The reference of `kubectl pdj` as a page, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from paddlejob.cli.catalog import KUBECTL_SECTIONS as SECTIONS
from paddlejob.cli.kubectl import group
from paddlejob.cli.lazy_group import load
from scripts.cli_chinese import CHINESE

COMMON = ("namespace", "context", "kubeconfig", "run_dir", "help")
EXAMPLES = (
    "submit job.yaml --workers 4 -e LR=0.1 --logs -- --epochs 10",
    "cp JOB worker-0:/output ./output        cp JOB ./data worker-0:/data",
    "install --image IMAGE | kubectl apply --server-side -f -",
)
"""Commands in a help, which are the same in every language."""

INTRODUCTION = """\
# `kubectl pdj`

[简体中文](cli.zh-CN.md)

Submit, follow and change PaddleJobs on a cluster, with kubectl's flags and your own permissions. `pip install
.` in a clone puts the plugin and its completion (`kubectl_complete-pdj`) on the PATH.

```bash
kubectl pdj submit job.yaml --workers 4 --logs      # follow all ranks to the end; exit with the job's result
kubectl pdj get -A -w                               # status, progress, duration, reason
kubectl pdj explain resnet                          # why it is not running or failed, and what to do
kubectl pdj logs resnet --first-error               # the traceback of the rank that failed first
kubectl pdj retry resnet                            # a finished job again, as a new job
```

JOB is the exact name of a job, or `@latest` for the newest one. Verbs that only show something take the
newest job if no JOB is given. RANK is a rank (`0`) or a pod (`ps-1`). The rank is the index of a worker, or
of a process if pods have [several processes](progress.md#pods-with-several-cards).

`kubectl pdj VERB` works on a cluster. `paddlejob VERB` works on the runs on this machine, or on a cluster
with `-n`, `-A`, `--context` or `--kubeconfig`. On this machine JOB can also be the name of a job, which
stands for its newest run, and `--run-dir DIR` chooses another directory of runs. `paddlejob runs` and
`paddlejob rm` are other names of `get` and `delete`.

| exit code | meaning |
|---|---|
| 0 | done, or the job completed |
| 1 | the job failed |
| 2 | the command was wrong or could not be carried out |
| 124 | timed out |
| 130 | interrupted |

Flags of every verb, also before it: `-n`, `--namespace NAME`; `--context NAME`; `--kubeconfig FILE`. The
cluster, the user and the namespace are those that kubectl would use.
"""

CHINESE_INTRODUCTION = """\
# `kubectl pdj`

[English](cli.md)

在集群上提交、跟踪和修改 PaddleJob，参数与 kubectl 一致，使用您自己的权限。
在源码目录执行 `pip install .` 会把插件及其补全程序（`kubectl_complete-pdj`）放到 PATH 上。

```bash
kubectl pdj submit job.yaml --workers 4 --logs      # 跟踪所有 rank 直到结束，退出码即任务结果
kubectl pdj get -A -w                               # 状态、进度、时长、原因
kubectl pdj explain resnet                          # 为什么没有运行或失败，以及怎么办
kubectl pdj logs resnet --first-error               # 最先失败的 rank 的 traceback
kubectl pdj retry resnet                            # 把已结束的任务作为新任务再运行一次
```

JOB 是任务的完整名称，`@latest` 表示最新的任务。只显示信息的子命令在没有给出 JOB 时使用最新的任务。
RANK 是 rank（`0`）或 Pod（`ps-1`）。rank 是 worker 的序号；
Pod 有[多个进程](progress.zh-CN.md#有多块卡的-pod)时是进程的序号。

`kubectl pdj VERB` 用于集群。`paddlejob VERB` 用于本机的运行；
带有参数 `-n`、`-A`、`--context` 或 `--kubeconfig` 时用于集群。
用于本机时，JOB 也可以是任务名，表示它最新的一次运行；`--run-dir DIR` 选择其他的运行目录。
`paddlejob runs` 和 `paddlejob rm` 是 `get` 和 `delete` 的别名。

| 退出码 | 含义 |
|---|---|
| 0 | 已执行，或任务已完成 |
| 1 | 任务失败 |
| 2 | 命令有误或无法执行 |
| 124 | 超时 |
| 130 | 被中断 |

每个子命令都有的参数（也可写在子命令之前）：`-n`、`--namespace NAME`；`--context NAME`；`--kubeconfig FILE`。
集群、用户和命名空间与 kubectl 所用的相同。
"""


def cli_reference(*, chinese: bool = False) -> str:
    """Return the page as Markdown. Raises KeyError for a text that has no Chinese yet."""
    say = _in_chinese if chinese else str
    parts = [CHINESE_INTRODUCTION if chinese else INTRODUCTION]
    with click.Context(group, info_name="kubectl pdj") as root:
        for title, table in SECTIONS.items():
            parts.append(f"## {say(title)}\n")
            for verb, (place, line) in table.items():
                parts += _verb(root, verb, load(place), say(line), say)
    return "\n".join(parts)


def _verb(root: click.Context, verb: str, command: click.Command, line: str, say) -> Iterator[str]:
    with click.Context(command, info_name=verb, parent=root) as context:
        usage = " ".join(command.collect_usage_pieces(context))
    yield f"### `{verb}`\n"
    yield f"`kubectl pdj {verb} {usage}`\n"
    yield f"{line}\n"
    yield from (f"{say(each)}\n" for each in _details(command))
    if rows := [_row(each, say) for each in command.params if _is_shown(each)]:
        yield "\n".join(("| | |", "|---|---|", *rows)) + "\n"


def _details(command: click.Command) -> list[str]:
    """Return the paragraphs of the help after its first sentence."""
    _, *more = inspect.cleandoc(command.help or "").split("\n\n")
    return more


def _in_chinese(text: str) -> str:
    return text if text in EXAMPLES else CHINESE[text.replace("\n", " ")]


def _is_shown(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.name not in COMMON


def _row(option: click.Parameter, say) -> str:
    assert isinstance(option, click.Option)
    names = ", ".join(f"`{name}`" for name in sorted([*option.opts, *option.secondary_opts], key=len))
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(group))}"
    return f"| {names}{value.replace('|', ' / ')} | {say(option.help or '')} |"
