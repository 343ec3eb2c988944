"""`kubectl pdj` means the cluster; `paddlejob` means this machine, unless a flag chooses a cluster."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.cli import completion
from paddlejob.cli.catalog import KUBECTL_VERBS as VERBS
from paddlejob.cli.lazy_group import load
from paddlejob.cli.target import Program, target_flags
from simkube.build import job


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["mnist"], False),
        (["mnist", "--run-dir", "runs"], False),
        (["mnist", "-n", "team-a"], True),
        (["mnist", "-nteam-a"], True),
        (["-A"], True),
        (["mnist", "--namespace=team-a"], True),
        (["mnist", "--context", "prod"], True),
        (["mnist", "--kubeconfig=k"], True),
        (["job.yaml", "--", "-n", "5"], False),
    ],
)
def test_flags_of_a_verb_choose_a_cluster(arguments, expected):
    @click.command()
    @click.argument("words", nargs=-1)
    @click.option("-A", "all_namespaces", is_flag=True)
    @target_flags
    def verb(target, **_) -> None:
        chosen.append(target)

    chosen = []
    assert CliRunner().invoke(verb, arguments, obj=Program("paddlejob", is_local=True)).exit_code == 0
    assert [target.is_local for target in chosen] == [not expected]


def test_paddlejob_is_about_this_machine_and_says_so(cluster, paddlejob, pdj, file):
    pdj("submit", file(job().worker(1)))
    for verb in ("logs", "describe", "wait", "suspend", "delete", "explain"):
        result = paddlejob(verb, "demo")
        assert result.exit_code == 2
        assert "there are no runs in" in result.stderr
    assert cluster.server.get(PADDLE_JOBS, "default", "demo"), "the cluster was left alone"


def test_paddlejob_is_about_a_cluster_with_a_flag(cluster, paddlejob, pdj, file):
    pdj("submit", file(job().worker(1)))
    assert "demo" in paddlejob("get", "-n", "default").stdout
    cluster.write("demo-worker-0", "hello")
    assert paddlejob("logs", "demo", "--context", "test").stdout == "worker-0 | hello\n"
    assert "scaling to 2" in paddlejob("scale", "demo", "2", "-n", "default").stdout
    assert "demo" in paddlejob("get", "-A").stdout


def test_an_empty_flag_is_no_guess(paddlejob, pdj, file):
    """`paddlejob delete -n "$NAMESPACE" demo` without the variable must not touch a run on this machine."""
    assert paddlejob("submit", file(job().worker(1, command=["true"])), "--logs").exit_code == 0
    pdj("submit", file(job().worker(1)))
    for flag in ("-n", "--context", "--kubeconfig"):
        assert paddlejob("get", flag, "", "-o", "name").stdout == "paddlejob.batch.paddlepaddle.org/demo\n"


def test_a_local_run_has_the_same_verbs(paddlejob, file):
    built = job().worker(1, command=["sh", "-c", "echo hello; exit 3"]).spec(backoffLimit=0)
    result = paddlejob("submit", file(built), "--logs")
    assert result.exit_code == 1, result.output
    assert "worker-0 | hello" in result.stdout
    assert "demo-" in paddlejob("get").stdout
    assert paddlejob("wait", "@latest").exit_code == 1
    assert paddlejob("logs", "-f").exit_code == 1
    first = paddlejob("logs", "--first-error")
    assert (first.stdout, "worker-0 failed first, in attempt 0" in first.stderr) == ("hello\n", True)
    assert "Failed" in paddlejob("describe", "@latest").stdout
    explained = paddlejob("explain", "@latest").stdout
    assert "Failed: " in explained
    assert "hello" in explained
    assert paddlejob("events", "@latest").exit_code == 0
    assert "PADDLE_TRAINER_ID=0" in paddlejob("env").stdout
    (name,) = paddlejob("retry", "@latest", "-o", "name").stdout.split()
    assert paddlejob("wait", name, "--timeout=60s").exit_code == 1
    assert paddlejob("delete", name).exit_code == 0
    assert "'' is not the name of a run" in paddlejob("delete", "").stderr
    assert paddlejob("delete", "demo").exit_code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_is_complete_and_needs_no_cluster(pdj, verb):
    result = pdj(verb, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


ROOT = Path(__file__).parents[3]
COMMAND = re.compile(r"^ *(?:\$ )?kubectl pdj ([^#\n]+)", re.MULTILINE)
SHOWN = [
    pytest.param(found[1], id=f"{path.name}: {found[1].strip()}")
    for path in sorted((*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md")))
    for found in COMMAND.finditer(path.read_text())
]


@pytest.mark.parametrize("words", SHOWN)
def test_a_command_of_the_documents_is_one(words):
    """Parsed only: the options of its verb and of all flags."""
    verb, *arguments = [each for each in shlex.split(words) if each not in ("-n", "team-a")]
    command = load(VERBS[verb][0])
    assert command.make_context(verb, arguments)


def test_the_readme_shows_the_first_lines():
    assert sum(each.id.startswith("README.md: ") for each in SHOWN) >= 5


NOT_FOR_HELP = {"asyncio", "msgspec", "yaml", "ssl", "paddlejob.client", "paddlejob.kube", "paddlejob.api"}
NOT_FOR_A_LIST = {
    *("aiohttp", "rich", "uvloop", "prometheus_client", "tarfile", "secrets", "difflib"),
    *("paddlejob.kube.informer", "paddlejob.client.explain", "paddlejob.client.logs.follow"),
    *("paddlejob.api.validation", "paddlejob.api.crd", "paddlejob.local.store.run_directory"),
}


@pytest.mark.parametrize(
    ("arguments", "unwanted"), [(("--help",), NOT_FOR_HELP | NOT_FOR_A_LIST), (("get",), NOT_FOR_A_LIST)]
)
def test_a_command_starts_without_what_it_does_not_need(cluster, arguments, unwanted):
    code = "from paddlejob.cli.kubectl import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", code, *arguments]
    environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "paddlejob.cli.kubectl" in imported
    assert imported & unwanted == set()


@pytest.mark.parametrize(
    ("program", "slow", "code"),
    [
        ("kubectl_pdj", "click", -signal.SIGINT),
        ("paddlejob", "click", -signal.SIGINT),
        ("kubectl_pdj", "asyncio", 130),
        ("paddlejob", "asyncio", 130),
    ],
)
def test_a_command_can_be_interrupted_while_it_is_imported(cluster, tmp_path, program, slow, code):
    """A shell calls death by the signal 130, too."""
    (tmp_path / f"{slow}.py").write_text("import time; print('importing', flush=True); time.sleep(600)")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig)}
    start = f"import sys; from paddlejob.cli import {program}; sys.argv[1:] = ['get']; {program}()"
    with subprocess.Popen(
        [sys.executable, "-c", start], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (code, "")


def test_kubectl_completes_names_and_ranks(pdj, file, monkeypatch, capsys):
    pdj("submit", file(job("resnet").worker(2), job("rnn").worker(1)))
    monkeypatch.setattr(completion, "TIMEOUT_SECONDS", 60.0)

    def complete(*words: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-pdj", *words])
        completion.main()
        return capsys.readouterr().out.splitlines()

    assert complete("logs", "r") == ["resnet", "rnn", ":4"]
    assert complete("logs", "resnet", "--rank", "w") == ["worker-0", "worker-1", ":4"]
    launch = ["python", "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "train.py"]
    pdj("submit", file(job("cards").worker(1, command=launch)))
    assert complete("logs", "cards", "--rank", "") == ["worker-0", "0", "1", ":4"]
    assert complete("-n", "empty", "logs", "") == [":4"]
    assert complete("sus") == ["suspend\tStop the pods of a job until `resume`.", ":4"]
    assert complete("submit", "")[-1] == ":0", "files may be completed"
    assert "--first-error" in "\n".join(complete("logs", "--fi"))
    assert "--run-dir" not in "\n".join(complete("logs", "--r"))
