"""Whatever is wrong is said in one sentence, with an exit code and without a traceback."""

from __future__ import annotations

import socket

import pytest

from paddlejob.cli.catalog import KUBECTL_VERBS as VERBS
from paddlejob.client.cluster import Cluster
from simkube.build import job

ARGUMENTS = {
    "submit": ("FILE", "--dry-run=server"),
    "validate": ("FILE",),
    "convert": ("FILE",),
    "exec": ("@latest", "--", "true"),
    "cp": ("@latest", "./here", "worker-0:/there"),
    "port-forward": ("@latest", "80"),
    "scale": ("@latest", "2"),
    "completion": ("bash",),
    "postmortem": ("@latest", "--to", "-"),
    **dict.fromkeys(("get", "install", "top", "version"), ()),
}
"""What each verb is called with; the others take the name of a job. `ui` serves until it is interrupted."""


def arguments_of(verb: str, path: object) -> list[str]:
    return [str(path) if each == "FILE" else each for each in ARGUMENTS.get(verb, ("@latest",))]


CHANGES_RUNS = ("delete", "import", "retry")
"""Verbs that get a run of their own."""


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"ui"}))
def test_a_verb_works_on_a_finished_run_or_says_why_not(paddlejob, file, finished_run, monkeypatch, verb):
    path = file(job().worker(1, command=["sh", "-c", "echo hello"]))
    if verb in CHANGES_RUNS:
        assert paddlejob("submit", path, "--logs").exit_code == 0
    else:
        monkeypatch.setenv("PADDLEJOB_RUNS", str(finished_run))
    result = paddlejob(verb, *arguments_of(verb, path))
    assert result.exit_code in (0, 2), result.output
    assert "unexpected" not in result.stderr
    assert "no run @latest" not in result.stderr
    if result.exit_code:
        (sentence,) = result.stderr.splitlines()
        assert sentence.startswith("error: ")


@pytest.mark.parametrize("verb", ["get", "submit", "logs"])
def test_a_server_that_cannot_be_reached_is_named(pdj, file, tmp_path, verb):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    kubeconfig = tmp_path / "unreachable"
    kubeconfig.write_text(
        f'clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]\n'
        "contexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
    )
    result = pdj(verb, *arguments_of(verb, file(job().worker(1))), "--kubeconfig", kubeconfig)
    assert result.exit_code == 2
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("error: ")
    assert f"127.0.0.1:{port}" in sentence


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, "No such file"), ("clusters: [", "is not valid YAML"), ("[]", "kubeconfig")],
)
def test_a_kubeconfig_that_cannot_be_read_is_named(pdj, tmp_path, text, expected):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    result = pdj("get", "--kubeconfig", path)
    assert result.exit_code == 2
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("error: ")
    assert str(path) in sentence
    assert expected in sentence


@pytest.mark.parametrize("text", ["[" * 200_000, "[" * 2000 + "]" * 2000, "- " * 200_000])
@pytest.mark.parametrize("verb", ["submit", "validate"])
def test_a_file_that_is_nested_too_deeply_is_refused(pdj, tmp_path, verb, text):
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    result = pdj(verb, path)
    assert (result.exit_code, result.stderr) == (2, f"error: {path} is nested too deeply\n")


def test_a_mistake_of_ours_is_a_sentence_too(pdj, monkeypatch):
    async def broken(*_, **__):
        raise KeyError("rank")

    monkeypatch.setattr(Cluster, "list", broken)
    result = pdj("get")
    assert result.exit_code == 2
    expected = "error: unexpected KeyError: 'rank'; this is a bug, set PADDLEJOB_DEBUG=1 to see a traceback\n"
    assert result.stderr == expected
    monkeypatch.setenv("PADDLEJOB_DEBUG", "1")
    assert isinstance(pdj("get").exception, KeyError)
