"""Jobs in the cells of a notebook, run by a real kernel; and the notebooks of the examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddlejob import Job, train
from sdk.notebooks import NOTEBOOKS, executed, written

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

DEFINITIONS = """
import time
from dataclasses import dataclass
from paddlejob import JobFailed, train

STEPS = 4

@dataclass
class Settings:
    rate: float = 0.5

def fit(fails=False):
    for step in range(1, STEPS + 1):
        print(f"step {step}/{STEPS} loss {Settings().rate ** step}")
    if fails:
        raise ValueError("bad shape")
"""


def test_a_job_is_shown_watched_and_awaited_in_cells(laptop):
    notebook = written(
        laptop / "n.ipynb",
        DEFINITIONS,
        "job = train(fit)\njob",
        "job.watch()",
        "await job",
        "job.wait()\nprint(*job.logs(), sep='\\n')",
        "try:\n    train(fit, args={'fails': True}, spec={'backoffLimit': 0}).wait()\n"
        "except JobFailed as error:\n    print(error)",
    )
    _, shown, watched, awaited, printed, failed = executed(notebook, laptop)
    assert "<iframe" in shown.shown("text/html")[0]
    (html,) = watched.shown("text/html")
    assert "Completed" in html
    assert html.count("&quot;step&quot;:4") >= 2
    assert watched.shown("text/plain")[0].endswith(
        "on laptop: Completed: the worker succeeded, step 4/4 loss 0.0625"
    )
    assert "Completed" in awaited.shown("text/html")[0]
    assert printed.text.splitlines() == [f"step {step}/4 loss {0.5**step}" for step in range(1, 5)]
    assert "ValueError: bad shape" in failed.text


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_what_it_showed(path):
    cells = json.loads(path.read_text())["cells"]
    assert not [each for each in cells if each.get("outputs") or each.get("execution_count")]


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_deletes_its_own_jobs_only(path):
    sources = ["".join(each["source"]) for each in json.loads(path.read_text())["cells"]]
    [deleting] = [source for source in sources if "delete()" in source]
    assert "Job.list" not in deleting


@pytest.mark.paddle
@pytest.mark.timeout(600)
def test_the_laptop_notebook_trains_with_real_paddle(laptop):
    made = [sys.executable, str(ROOT / "scripts" / "paddle_env.py"), "3.3.1"]
    python = subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    (laptop / "other.sh").write_text("true")
    other = train("other.sh").wait(60)
    cells = executed(NOTEBOOKS / "laptop.ipynb", laptop, {"PADDLE_PYTHON": python})
    by_source = {cell.source: cell for cell in cells}
    (html,) = by_source["job.watch()"].shown("text/html")
    assert "Completed" in html
    assert "epoch 3/3 step 120/120" in html
    logs = next(cell for source, cell in by_source.items() if "job.logs(" in source).text
    assert "worker-0 done: rank 0 of 2" in logs
    assert "worker-1 done: rank 1 of 2" in logs
    failed = next(cell for source, cell in by_source.items() if "def broken" in source).text
    assert failed.startswith("worker-0 exited with 1\n")
    assert "K_lhs" in failed
    assert "kind: PaddleJob" in by_source["print(job.to_yaml())"].text
    assert cells[-1].text.count("deleted") == 2
    assert [each.name for each in Job.list()] == [other.name]
