"""The texts of `kubectl pdj` in Chinese, for its reference."""

from __future__ import annotations

CHINESE = {
    "Convert PaddleJobs of Kubeflow, with a report.": (
        "把 Kubeflow 的 PaddleJob 转换为本项目的任务，并给出报告。"
    ),
    "Move running PaddleJobs of Kubeflow to this operator.": (
        "把正在运行的 Kubeflow PaddleJob 迁移到本 operator。"
    ),
    "The report on stderr lists lost and changed fields, and differences in the variables of the pods.": (
        "标准错误输出上的报告列出丢失和改变的字段，以及 Pod 环境变量的差异。"
    ),
    "Convert elasticPolicy too, which Kubeflow never acted on.": (
        "同时转换 elasticPolicy（Kubeflow 从未使用过它）。"
    ),
    "Print the converted jobs only, without the report.": "只打印转换后的任务，不打印报告。",
    "Each is suspended, and resumes from its checkpoint as a job of this operator when its pods are gone.": (
        "先挂起原任务，待其 Pod 删除完毕后，作为本 operator 的任务从检查点继续。"
    ),
    "The old one stays suspended until you delete it.": "原任务保持挂起，直到您删除它。",
    "Move all jobs of the namespace that have not ended.": "迁移命名空间中所有未结束的任务。",
    "Only check: convert, let the API server check, and report.": (
        "只检查：转换、由 API server 检查并报告。"
    ),
    "Longest wait for old pods. Default: 5m.": "等待旧 Pod 删除的最长时间。默认 5m。",
    "Print or apply the manifests of the operator.": "打印或应用 operator 的清单。",
    "Apply the manifests, and wait until the operator runs.": "应用清单，并等待 operator 运行。",
    "Image of the operator. Default: paddlejob-operator:VERSION.": (
        "operator 的镜像。默认 paddlejob-operator:VERSION。"
    ),
    "Replicas of the operator; one of them is the leader.": "operator 的副本数，其中一个是 leader。",
    "Restrict the operator and its RBAC to its own namespace.": "operator 及其 RBAC 只限于自己的命名空间。",
    "Leave out the CRD, which only an administrator may install.": "不包含 CRD（只有管理员可以安装）。",
    "Install the dashboard too.": "同时安装 Web 控制台。",
    "Write the Helm chart to this folder instead.": "改为把 Helm chart 写到这个目录。",
    "With --apply: let the API server check, and change nothing.": (
        "与 --apply 一起：只由 API server 检查，不做修改。"
    ),
    "With --apply: take over fields of other managers.": "与 --apply 一起：接管其他管理者的字段。",
    "With --apply: longest wait. Default: 2m.": "与 --apply 一起：最长等待时间。默认 2m。",
    "Start training": "开始训练",
    "Look at jobs": "查看任务",
    "Change jobs": "修改任务",
    "Work inside a rank": "进入 rank",
    "Submit job files, and optionally follow the jobs.": "提交任务文件，并可跟踪任务。",
    "List jobs with status, progress and result.": "列出任务及其状态、进度和结果。",
    "Show a job, its ranks and its events.": "显示任务、各个 rank 和事件。",
    "Explain why a job is stuck or failed, and what to do.": "说明任务为什么没有运行或失败，以及怎么办。",
    "Show or follow the logs of a job.": "显示或跟踪任务的日志。",
    "Wait until jobs end, or reach another state.": "等待任务结束，或达到其他状态。",
    "Show jobs, or the ranks of one, live.": "实时显示任务，或某个任务的各个 rank。",
    "Show jobs in a browser, live.": "在浏览器中实时显示任务。",
    "The page is served only to you, on 127.0.0.1 and with your own permissions, until you press Ctrl+C.": (
        "页面只在 127.0.0.1 上供您自己使用，使用您自己的权限，按 Ctrl+C 结束。"
    ),
    "Port on 127.0.0.1; 0 picks a free one.": "127.0.0.1 上的端口；0 表示任意空闲端口。",
    "Also answer under this name, for a proxy in front.": "也接受这个主机名，用于前置代理。",
    "Only print the link.": "只打印链接。",
    "List the events of a job and its pods.": "列出任务及其 Pod 的事件。",
    "List finished jobs, including deleted ones.": "列出已结束的任务，包括已被删除的任务。",
    "Write a report about a job to an HTML page.": "把关于一个任务的报告写成 HTML 页面。",
    "File to write; - for standard output. Default: JOB.html.": (
        "要写入的文件；- 为标准输出。默认 JOB.html。"
    ),
    "Change the number of workers of a job.": "修改任务的 worker 数。",
    "Stop the pods of a job until `resume`.": "停止任务的 Pod，直到 `resume`。",
    "Start the pods of a suspended job again.": "重新启动已挂起的任务的 Pod。",
    "Run a finished job again, as a new job.": "把已结束的任务作为新任务再运行一次。",
    "Stop a job and keep its record.": "停止任务，保留其记录。",
    "Delete jobs with everything that belongs to them.": "删除任务及其所有对象。",
    "Show the environment of a rank.": "显示某个 rank 的环境变量。",
    "Run a command in a rank.": "在某个 rank 中运行命令。",
    "Show the current call stack of each rank.": "显示每个 rank 当前的调用栈。",
    "Rank (0), pod (heter-1) or role.": "rank（0）、Pod（heter-1）或角色。",
    "Show all threads, not only the main one.": "显示所有线程，而不只是主线程。",
    "Copy files out of a rank or into it.": "从 rank 复制文件，或复制到 rank。",
    "Forward ports of this machine to a rank.": "把本机端口转发到某个 rank。",
    "Check job files without submitting them.": "检查任务文件，不提交。",
    "Show the versions of this program and of the cluster.": "显示本程序和集群的版本。",
    "Print the completion script for a shell.": "打印 shell 的补全脚本。",
    "The same as FILE; - reads stdin.": "同 FILE；- 表示标准输入。",
    "Another name for the job.": "给任务换一个名称。",
    "Append a random suffix to the name, so that FILE can be submitted again.": (
        "在名称后加上随机后缀，同一文件可多次提交。"
    ),
    "Number of workers.": "worker 数。",
    "Number of parameter servers.": "参数服务器数。",
    "Image of the training containers.": "训练容器的镜像。",
    "Environment variable of all ranks.": "所有 rank 的环境变量。",
    "Only check: here, or by the API server.": "只检查：在本机，或由 API server 检查。",
    "Check the fields before anything is sent; the default. The API server checks in any case.": (
        "发送之前先检查字段（默认）。无论如何 API server 都会检查。"
    ),
    "Watch the job until it ends; exit with its result.": "显示任务的状态变化直到结束，退出码即结果。",
    "Follow the logs until the job ends; exit with its result.": "跟踪日志直到任务结束，退出码即结果。",
    "With --logs: only this rank (0, ps-1).": "与 --logs 一起：只看该 rank（0、ps-1）。",
    "Maximum time to follow, e.g. 8h.": "最长跟踪时间，例如 8h。",
    "Output format.": "输出格式。",
    "List only the newest jobs.": "只列出最新的若干任务。",
    "Show the jobs of all namespaces.": "显示所有命名空间的任务。",
    "Only jobs with these labels, e.g. team=a.": "只列出带有这些标签的任务，例如 team=a。",
    "Only jobs in these phases, e.g. Pending,Running.": "只列出处于这些阶段的任务，例如 Pending,Running。",
    "Only jobs of this queue of Kueue or Volcano.": "只列出 Kueue 或 Volcano 该队列的任务。",
    "After listing, watch for changes.": "列出之后继续监视变化。",
    "Don't print headers.": "不打印表头。",
    "List the ranks of one JOB: pod, card, step, loss, last line.": (
        "列出一个任务的各个 rank：Pod、卡、step、loss 和最后一行。"
    ),
    "Only this rank (0), pod (ps-1) or role (ps).": "只看该 rank（0）、Pod（ps-1）或角色（ps）。",
    "Follow the logs until the job ends, across restarts.": "跟踪日志直到任务结束，重启之后继续。",
    "Only the last lines of each container.": "每个容器只显示最后若干行。",
    "Only lines newer than this, e.g. 10m, 2h; 10 means seconds.": (
        "只显示不早于此时间的行，例如 10m、2h；10 表示 10 秒。"
    ),
    "Print a timestamp for each line.": "打印每行的时间戳。",
    "Show the lines before the last restart of a container or program.": (
        "显示容器或程序最近一次重启之前的日志。"
    ),
    "Show the traceback of the rank that failed first.": "显示最先失败的 rank 的 traceback。",
    "Container to use. Default: the one that trains.": "使用的容器。默认是训练容器。",
    "Show all containers of each pod, init containers too.": "显示每个 Pod 的所有容器，包括 init 容器。",
    "Print the rank in front of each line.": "在每行前打印 rank。",
    "Maximum number of logs to read at a time.": "同时读取的日志数上限。",
    "ended (default), completed, running, suspended, deleted, or condition=TYPE[=STATUS].": (
        "ended（默认）、completed、running、suspended、deleted 或 condition=TYPE[=STATUS]。"
    ),
    "Longest time to wait, e.g. 30m.": "最长等待时间，例如 30m。",
    "Longest time to wait, e.g. 1m.": "最长等待时间，例如 1m。",
    "Print once and exit; the default without a terminal.": "只打印一次就退出；没有终端时默认如此。",
    "Do not ask.": "不询问。",
    "Wait until the job is deleted; the default.": "等待任务删除完毕；默认如此。",
    "Rank (0) or pod (ps-1).": "rank（0）或 Pod（ps-1）。",
    "Pass standard input on to the command.": "把标准输入传给命令。",
    "Run the command on a terminal.": "在终端上运行命令。",
    "Address to listen on.": "监听地址。",
    "Also validate on the API server.": "同时由 API server 检查。",
    "Do not ask the cluster.": "不查询集群。",
    "-o wide adds attempts, loss, ETA and messages; -o yaml and -o json print everything.": (
        "-o wide 还显示尝试次数、loss、ETA 和 message；-o yaml 和 -o json 打印全部内容。"
    ),
    "-f can start before the first pod exists, continues across restarts, and ends with the job. "
    "The exit code is then 0 if the job completed, 1 if it failed.": (
        "-f 可以在第一个 Pod 出现之前开始，重启之后继续，随任务结束而结束。此时任务完成的退出码为 0，"
        "失败为 1。"
    ),
    "Exit codes: 0 completed, or the goal was reached; 1 a job failed; 124 timed out.": (
        "退出码：0 表示任务完成，或达到了所等的状态；1 表示有任务失败；124 表示超时。"
    ),
    "CPU and memory of the ranks are shown if the cluster has a metrics server.": (
        "如果集群有 metrics server，还显示各个 rank 的 CPU 和内存。"
    ),
    "-o wide adds the names of the records, which `postmortem` takes too.": (
        "-o wide 还显示记录的名称，`postmortem` 也接受这个名称。"
    ),
    "Works for deleted jobs too, as long as the operator keeps their records. JSON goes to standard "
    "output.": ("已删除的任务也可以，只要 operator 还保留着它的记录。JSON 输出到标准输出。"),
    "Ranks with the same stack are shown once. The job needs the recorder, and you need permission "
    "to exec into pods.": ("调用栈相同的 rank 只显示一次。任务需要开启记录器，您需要在 Pod 中 exec 的权限。"),
    "`kubectl pdj` does not need it if kubectl's own completion is set up, which finds "
    "kubectl_complete-pdj on the PATH.": (
        "如果已经设置了 kubectl 自己的补全，`kubectl pdj` 就不需要它：kubectl 会在 PATH 上找到 "
        "kubectl_complete-pdj。"
    ),
    "Set up a cluster": "配置集群",
    "Help": "帮助",
    "Pods get SIGTERM and their grace period to save their work. On a cluster this is the same as "
    "`suspend`.": ("Pod 会收到 SIGTERM，并有宽限期保存工作。在集群上与 `suspend` 相同。"),
    "Without a terminal, --yes is needed for --all-finished and --older-than, and for a run on this "
    "machine with files.": (
        "没有终端时，--all-finished 和 --older-than，以及删除本机上有文件的运行，都需要 --yes。"
    ),
    "Delete all jobs that have ended.": "删除所有已结束的任务。",
    "Delete jobs that ended longer ago than this, e.g. 7d.": "删除结束时间早于此时长之前的任务，例如 7d。",
    "Relative paths in a rank start at its working directory.": "rank 中的相对路径从其工作目录开始。",
}
