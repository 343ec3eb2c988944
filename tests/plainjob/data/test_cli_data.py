from __future__ import annotations

import pytest
from click.testing import CliRunner

from paddlejob.cli.setup.data import command
from plainjob.line_files import lines, write


@pytest.fixture
def run(tmp_path):
    write(tmp_path / "train.txt", lines(9))

    def call(*arguments, **environment):
        return CliRunner().invoke(
            command, [*arguments], env={"OUT_DIR": str(tmp_path / "job"), **environment}
        )

    return call


def test_the_original_variables_are_enough(run, tmp_path):
    done = run("split", str(tmp_path / "train.txt"), SPLIT_COUNT="3")
    assert done.exit_code == 0
    assert f"{tmp_path}/job/0/data: 3 lines, 21 B, written\n" in done.stdout


def test_a_second_run_says_that_there_is_nothing_to_do(run, tmp_path):
    run("split", str(tmp_path / "train.txt"), SPLIT_COUNT="3")
    assert "nothing to do" in run("split", str(tmp_path / "train.txt"), SPLIT_COUNT="3").stdout


def test_an_error_is_one_sentence_with_its_own_exit_code(run, tmp_path):
    done = run("split", str(tmp_path / "train.txt"), SPLIT_COUNT="10")
    assert done.exit_code == 66
    assert done.stderr.splitlines()[-1].startswith("error: SPLIT_COUNT is 10, but ")


def test_a_missing_count_names_the_variable(run, tmp_path):
    done = run("split", str(tmp_path / "train.txt"))
    assert done.exit_code == 2
    assert "SPLIT_COUNT" in done.stderr


def test_verify_counts_what_it_read(run, tmp_path):
    run("split", str(tmp_path / "train.txt"), SPLIT_COUNT="3")
    assert "3 files of 3 shards match their checksums" in run("verify").stdout


def test_interruption_says_how_to_go_on(run, tmp_path, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("paddlejob.cli.setup.data.split_data", interrupted)
    done = run("split", str(tmp_path / "train.txt"), SPLIT_COUNT="3")
    assert (done.exit_code, "again to resume" in done.stderr) == (130, True)
