from __future__ import annotations

import math

import pytest

from local.jobs import job, role
from paddlejob.local.store import outcome
from paddlejob.training.log_lines import Progress


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            b'{"time": 1.5, "rank": 0, "step": 7, "total": 10, "loss": 0.5}',
            Progress(step=7, steps=10, loss=0.5),
        ),
        (b'{"epoch": 2, "step": 7}', Progress(epoch=2, step=7)),
        (b"120/500", Progress(step=120, steps=500)),
        (b" 1/2 ", Progress(step=1, steps=2)),
        (b"", None),
        (b"training", None),
        (b"[1]", None),
        (b'{"step": "many"}', None),
        (b'{"loss": "low"}', None),
        (b"9" * 5000 + b"/2", None),
        (b"\xff\xfe", None),
    ],
)
def test_parsing_of_report_lines(line, expected):
    assert outcome.parse_report(line) == expected


def test_a_loss_that_is_not_finite_is_read():
    told = outcome.parse_report(b'{"step": 1, "loss": "nan"}')
    assert told is not None
    assert math.isnan(told.loss)


@pytest.mark.parametrize(
    ("content", "step"),
    [
        (b'{"step": 1}\n{"step": 2}\n', 2),
        (b'{"step": 1}\n{"step": 2', 1),
        (b"1/9\n2/9\n", 2),
        (b"x" * 10_000 + b"\n3/9\n", 3),
    ],
)
def test_the_last_whole_line_counts(tmp_path, content, step):
    (tmp_path / "demo-worker-0").write_bytes(content)
    assert outcome.reported_progress(tmp_path / "demo-worker-0").step == step


@pytest.mark.parametrize("content", [None, b"", b"3/9"])
def test_an_incomplete_line_is_not_a_report(tmp_path, content):
    if content is not None:
        (tmp_path / "demo-worker-0").write_bytes(content)
    assert outcome.reported_progress(tmp_path / "demo-worker-0") is None


async def test_a_silent_program_reports_progress(finish):
    script = "python -c 'from paddlejob.recorder import report; report(7, total=10, loss=0.5)'"
    run = await finish(job(worker=role(1, script)))
    told = outcome.reported_progress(run.directory.progress("job-worker-0"))
    assert told == Progress(step=7, steps=10, loss=0.5)


async def test_a_path_of_the_jobs_own_is_kept(finish):
    worker = role(
        1,
        containers=[
            {**role(1)["template"]["spec"]["containers"][0], "env": [{"name": "PYTHONPATH", "value": "/own"}]}
        ],
    )
    run = await finish(job(worker=worker))
    first, second = run.env("worker-0")["PYTHONPATH"].split(":")
    assert first.endswith("recorder/site")
    assert second == "/own"
