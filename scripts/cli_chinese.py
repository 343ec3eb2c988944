"""The texts of `kubectl pdj` in Chinese, for its reference."""

from __future__ import annotations

CHINESE = {
    "Convert PaddleJobs of Kubeflow, with a report.": (
        "把 Kubeflow 的 PaddleJob 转换为本项目的作业，并给出报告。"
    ),
    "Move running PaddleJobs of Kubeflow to this operator.": (
        "把正在运行的 Kubeflow PaddleJob 迁移到本 operator。"
    ),
    "Print PaddleJobs of kubeflow.org/v1 as jobs of this operator; other objects come out as they are.": (
        "把 kubeflow.org/v1 的 PaddleJob 打印为本 operator 的作业；其他对象原样输出。"
    ),
    "The report on stderr says what was lost or changed, and how the variables of the pods differ.": (
        "标准错误上的报告说明丢失和改变的内容，以及 pod 环境变量的差别。"
    ),
    "Convert elasticPolicy too, which Kubeflow never acted on.": (
        "接管 elasticPolicy（Kubeflow 从未据此动作）。"
    ),
    "Print the converted jobs only, without the report.": "只打印转换后的作业，不打印报告。",
    "Move running PaddleJobs of kubeflow.org/v1 to this operator, with their names and queues.": (
        "把正在运行的 kubeflow.org/v1 PaddleJob 迁移到本 operator，名字和队列不变。"
    ),
    "Each is suspended, and resumes from its checkpoint as a job of this operator when its pods are gone.": (
        "先暂停原作业，待其 pod 消失后，作为本 operator 的作业从 checkpoint 继续。"
    ),
    "The old one stays suspended until you delete it.": "原作业保持暂停，直到您删除它。",
    "Move all jobs of the namespace that have not ended.": "迁移命名空间中所有未结束的作业。",
    "Only check: convert, let the API server check, and report.": "只检查：转换、由 API server 检查并报告。",
    "Longest wait for old pods. Default: 5m.": "等待旧 pod 消失的最长时间。默认 5m。",
    "Print or apply what installs the operator on a cluster.": "打印或应用在集群上安装 operator 的清单。",
    "Print the manifests of the CRD and the operator, of this version, or apply them to a cluster.": (
        "打印本版本的 CRD 和 operator 的清单，或应用到集群。"
    ),
    "Apply them, and wait until the operator runs.": "应用清单，并等待 operator 运行。",
    "Image of the operator. Default: paddlejob-operator:VERSION.": (
        "operator 的镜像。默认 paddlejob-operator:VERSION。"
    ),
    "Replicas of the operator; one leads.": "operator 的副本数，其中一个是 leader。",
    "Restrict the operator and its RBAC to its own namespace.": (
        "operator 只在自己的命名空间工作，不需要其他权限。"
    ),
    "Leave out the CRD, which only an administrator may install.": "不包含 CRD（只有管理员可以安装）。",
    "Install the dashboard too.": "同时安装 dashboard。",
    "Write the Helm chart to this folder instead.": "改为把 Helm chart 写到这个目录。",
    "With --apply: let the API server check, and change nothing.": (
        "与 --apply 一起：只由 API server 检查，不做修改。"
    ),
    "With --apply: take over fields of other managers.": "与 --apply 一起：接管其他管理者的字段。",
    "With --apply: longest wait. Default: 2m.": "与 --apply 一起：最长等待时间。默认 2m。",
    "Jobs": "任务",
    "Changes": "修改",
    "Ranks": "Rank",
    "Other": "其他",
    "Submit jobs from files, and optionally follow them.": "从文件提交任务，并可跟踪其运行。",
    "List jobs: status, duration, reason.": "列出任务：状态、时长、原因。",
    "Show a job, its ranks and its events.": "显示任务、各个 rank 和事件。",
    "Explain why a job is stuck or failed, and what to do.": "说明任务为什么没有运行或失败，以及怎么办。",
    "Show or follow the logs of all ranks, or of some.": "显示或跟踪全部或部分 rank 的日志。",
    "Wait until jobs end, or reach another state.": "等待任务结束，或等待其他条件。",
    "Show jobs, or the ranks of one, live.": "实时显示所有任务，或某个任务的各个 rank。",
    "Show jobs in a browser, live.": "在浏览器中实时显示任务。",
    "Show jobs in a browser: progress, logs and curves while they change, and what can be done.": (
        "在浏览器中显示任务：实时的进度、日志和曲线，以及可以进行的操作。"
    ),
    "The page is served only to you, on 127.0.0.1 and with your own permissions, until you press Ctrl+C.": (
        "页面只在 127.0.0.1 上供您自己使用，沿用您自己的权限，按 Ctrl+C 结束。"
    ),
    "Port on 127.0.0.1; 0 picks a free one.": "127.0.0.1 上的端口；0 表示任意空闲端口。",
    "Also answer under this name, for a proxy in front.": "也接受这个主机名，用于前置代理。",
    "Only print the link.": "只打印链接。",
    "List what happened to a job and its pods.": "列出任务及其 pod 的事件。",
    "List finished jobs, including deleted ones.": "列出已结束的任务，包括已被删除的任务。",
    "Write a report about a job to an HTML page.": "把关于一个任务的全部信息写成一个页面。",
    "File to write; - for standard output. Default: JOB.html.": "要写入的文件；- 为标准输出。默认 JOB.html。",
    "Change the number of workers of a job.": "修改任务的 worker 数。",
    "Stop the pods of a job until `resume`.": "停止任务的 pod，直到 `resume`。",
    "Start the pods of a suspended job again.": "重新启动已暂停任务的 pod。",
    "Run a finished job again, as a new job.": "把已结束的任务作为新任务再运行一次。",
    "Stop the pods of a job and keep the job.": "停止任务的 pod，保留任务。",
    "Delete jobs and everything that belongs to them.": "删除任务及其所有对象。",
    "Show the environment of one rank.": "显示某个 rank 的环境变量。",
    "Run a command in a rank.": "在某个 rank 中运行命令。",
    "Show where in its code each rank is.": "显示每个 rank 正在执行的代码位置。",
    "Rank of a worker (0), a pod (heter-1) or a role.": "worker 的 rank（0）、Pod（heter-1）或角色。",
    "Show all threads, not only the main one.": "显示所有线程，而不只是主线程。",
    "Copy files out of a rank or into it.": "从 rank 复制文件，或复制到 rank。",
    "Forward ports of this machine to a rank.": "把本机端口转发到某个 rank。",
    "Check job files without submitting them.": "检查任务文件，不提交。",
    "Show the versions of this program and of the cluster.": "显示本程序和集群的版本。",
    "Print a script that completes commands and names in a shell.": "打印 shell 的命令与名称补全脚本。",
    "The same as FILE; - reads stdin.": "同 FILE；- 表示标准输入。",
    "Another name for the job.": "任务的另一个名称。",
    "Complete the name, so that FILE can be submitted again.": "自动补全名称，同一文件可多次提交。",
    "Number of workers.": "worker 数。",
    "Number of parameter servers.": "参数服务器数。",
    "Image of the training containers.": "训练容器的镜像。",
    "Environment variable of all ranks.": "所有 rank 的环境变量。",
    "Only check: here, or by the API server.": "只检查：在本机，或由 API server 检查。",
    "Watch the job until it ends; exit with its result.": "报告任务状态直到结束，退出码即结果。",
    "Follow the logs until the job ends; exit with its result.": "跟踪日志直到任务结束，退出码即结果。",
    "With --logs: only this rank (0, ps-1).": "与 --logs 一起：只看该 rank（0、ps-1）。",
    "Longest time to follow, e.g. 8h.": "最长跟踪时间，例如 8h。",
    "Output format.": "输出格式。",
    "List the jobs of all namespaces.": "列出所有命名空间的任务。",
    "Show the jobs of all namespaces.": "显示所有命名空间的任务。",
    "Only jobs with these labels, e.g. team=a.": "只列出带有这些标签的任务，例如 team=a。",
    "Only jobs in these phases, e.g. Pending,Running.": "只列出处于这些阶段的任务，例如 Pending,Running。",
    "Only jobs of this queue of Kueue or Volcano.": "只列出 Kueue 或 Volcano 该队列的任务。",
    "After listing, watch for changes.": "之后每当任务变化时再次打印。",
    "Print no headings.": "不打印表头。",
    "Only this rank (0), pod (ps-1) or role (ps).": "只看该 rank（0）、pod（ps-1）或角色（ps）。",
    "Follow the logs until the job ends, across restarts.": "跟踪日志直到任务结束，跨越所有重启。",
    "Only the last lines of each container.": "每个容器只显示最后若干行。",
    "Only lines newer than this, e.g. 10m.": "只显示不早于此时间的行，例如 10m。",
    "Print a timestamp for each line.": "打印每行的时间。",
    "The logs of containers before their last restart.": "最近一次重启之前的容器。",
    "The traceback of the rank that failed first.": "最先失败的 rank 的 traceback。",
    "Container to use. Default: the one that trains.": "训练容器以外的容器。",
    "All containers of each pod, init containers too.": "每个 pod 的所有容器，包括 init 容器。",
    "Print the rank in front of each line.": "在每行前打印 rank。",
    "Maximum number of logs to read at a time.": "同时读取的日志数上限。",
    "ended (default), completed, running, suspended, deleted, or condition=TYPE[=STATUS].": "ended（默认）、"
    "completed、running、suspended、deleted 或 condition=TYPE[=STATUS]。",
    "Longest time to wait, e.g. 30m.": "最长等待时间，例如 30m。",
    "Longest time to wait, e.g. 1m.": "最长等待时间，例如 1m。",
    "Print once and exit; the default without a terminal.": "只打印一次；没有终端时为默认。",
    "Do not ask.": "不询问。",
    "Wait until the job is deleted; the default.": "等待任务消失；默认如此。",
    "Rank of a worker (0) or a pod (ps-1).": "worker 的 rank（0）或 pod（ps-1）。",
    "Pass standard input on to the command.": "把标准输入传给命令。",
    "Run the command on a terminal.": "在终端上运行命令。",
    "Address to listen on.": "监听地址。",
    "Also validate on the API server.": "同时由 API server 检查。",
    "Do not ask the cluster.": "不询问集群。",
}
