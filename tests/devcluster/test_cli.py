from __future__ import annotations

import pytest

from devcluster.cli import main


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["status"], 3, "cluster dev is not running", id="status without a cluster"),
        pytest.param(["down"], 0, "there is no cluster dev", id="down without a cluster"),
        pytest.param(["kubeconfig"], 1, "No cluster is running", id="kubeconfig without a cluster"),
        pytest.param(["build", "kube-api"], 1, "no program 'kube-api'", id="a program that does not exist"),
        pytest.param(["up", "--components=etcd,kublet"], 1, "no component 'kublet'", id="a wrong component"),
        pytest.param(["pin", "pki"], 1, "nothing to pin", id="pinning our own source"),
    ],
)
def test_commands_answer_in_a_sentence(arguments, code, words, cache, capsys):
    assert main(arguments) == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


def test_build_prints_the_path_alone_on_standard_output(cache, go, capsys):
    assert main(["build", "pki"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(str(cache / "bin" / "pki-local-"))


def test_a_switch_that_is_neither_true_nor_false_is_refused(cache, capsys):
    with pytest.raises(SystemExit):
        main(["up", "--feature-gates", "GangScheduling=yes"])
    assert "'GangScheduling=yes' must look like NAME=true or NAME=false" in capsys.readouterr().err
