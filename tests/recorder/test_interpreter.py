from __future__ import annotations

import ast
import itertools

import pytest

from paddlejob.recorder.sender import LAST_SECONDS, pauses
from tests.recorder.interpreter import PACKAGE, on_path, reports, run

REPORTS = """
from paddlejob.recorder import report
for step in range(1, 4):
    report(step, total=3, loss=1 / step)
"""


def test_a_program_reports_its_progress(tmp_path):
    done = run(REPORTS, tmp_path, PADDLE_TRAINER_ID="7")
    assert (done.returncode, done.stderr) == (0, "")
    last = reports(tmp_path)[-1]
    assert last["time"] > 0
    assert (last["rank"], last["step"], last["total"], last["phase"]) == (7, 3, 3, "training")
    assert last["loss"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("variable", "expected"), [("4", 4), ("", None), ("x", None)])
def test_a_report_carries_the_attempt(tmp_path, variable, expected):
    assert run(REPORTS, tmp_path, PADDLEJOB_ATTEMPT=variable).stderr == ""
    assert {report.get("attempt") for report in reports(tmp_path)} == {expected}


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_is_a_word(tmp_path, number):
    run(f"from paddlejob.recorder import report\nreport(1, loss=float({number!r}))", tmp_path)
    assert reports(tmp_path)[-1]["loss"] == number


def test_without_a_file_nothing_happens(tmp_path):
    done = run(REPORTS, tmp_path, PADDLEJOB_PROGRESS_FILE="")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_turns_it_off_with_one_line(tmp_path):
    done = run(REPORTS, tmp_path, file="missing/progress")
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith("paddlejob recorder is off: FileNotFoundError: ")


@pytest.mark.parametrize(
    "looks", ["", "import importlib.util; importlib.util.find_spec('paddle'); "], ids=["", "looked for first"]
)
def test_a_paddle_that_it_does_not_know_turns_it_off_with_one_line(tmp_path, looks):
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text("answer = 42\n")
    done = run(f"{looks}import paddle; print(paddle.answer)", tmp_path, PYTHONPATH=on_path(tmp_path))
    assert (done.returncode, done.stdout) == (0, "42\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("paddlejob recorder is off: AttributeError: ")


def test_a_way_to_import_that_it_does_not_know_turns_it_off_with_one_line(tmp_path):
    (tmp_path / "paddle.py").write_text("answer = 42\n")
    program = """
import sys
class Old:
    def find_module(self, name, path=None):
        return None
sys.meta_path.insert(1, Old())
import paddle; print(paddle.answer)
"""
    done = run(program, tmp_path, PYTHONPATH=on_path(tmp_path))
    assert (done.returncode, done.stdout) == (0, "42\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("paddlejob recorder is off: AttributeError: ")


def test_the_users_own_sitecustomize_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("OWN = 1\nprint('own')\n")
    done = run("import sitecustomize; print(sitecustomize.OWN)", tmp_path, PYTHONPATH=on_path(tmp_path))
    assert (done.stdout, done.stderr) == ("own\n1\n", "")


def test_a_forked_child_reports_nothing(tmp_path):
    program = """
import os
from paddlejob.recorder import report
report(1)
if os.fork() == 0:
    report(99)
    raise SystemExit
os.wait()
"""
    assert run(program, tmp_path).returncode == 0
    assert {report["step"] for report in reports(tmp_path)} == {1}


def test_reports_become_less_frequent():
    day = 24 * 3600
    moments = itertools.takewhile(lambda moment: moment < day, itertools.accumulate(pauses()))
    assert len(list(moments)) < day / LAST_SECONDS + 300


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_its_syntax_is_that_of_python_3_8(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("size", ["1", "4"])
def test_one_of_several_processes_writes_its_state_beside_its_log(tmp_path, size):
    (tmp_path / "logs").mkdir()
    variables = {
        "PADDLE_LOCAL_RANK": "2",
        "PADDLE_LOCAL_SIZE": size,
        "PADDLE_LOG_DIR": str(tmp_path / "logs"),
    }
    done = run(REPORTS, tmp_path, PADDLE_TRAINER_ID="6", **variables)
    assert done.stderr == ""
    if size == "1":
        assert list((tmp_path / "logs").iterdir()) == []
        assert "localSize" not in reports(tmp_path)[-1]
        return
    assert [each.name for each in (tmp_path / "logs").iterdir()] == ["progress.2"]
    [state] = reports(tmp_path / "logs", "progress.2")
    assert (state["rank"], state["localSize"], state["step"], state["total"]) == (6, 4, 3, 3)
    assert reports(tmp_path)[-1]["localSize"] == 4


def test_a_directory_that_cannot_be_written_costs_the_file_only(tmp_path):
    variables = {
        "PADDLE_LOCAL_RANK": "2",
        "PADDLE_LOCAL_SIZE": "4",
        "PADDLE_LOG_DIR": str(tmp_path / "missing"),
    }
    assert run(REPORTS, tmp_path, **variables).stderr == ""
    assert reports(tmp_path)[-1]["step"] == 3
